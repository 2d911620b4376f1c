import t from 'tap';
import {
  ask,
  connect,
  exchangeBytes,
  liveKey,
  parseResponse,
  requestBytes,
  startTestGateway,
  startUpstream,
} from '../edge/harness.js';

/** The list and the proxy that forwards the client's address may write the address of an exit differently. */
t.test('Tor evasion: no spelling of an exit’s address evades the list', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, {
    upstreamUrl: upstream.url,
    config: { trustedProxies: ['127.0.0.1'] },
    // The forms in real lists: uncompressed, in upper case, IPv4-mapped.
    torExits: ['198.51.100.9', '2001:0DB8:0000:0000:0000:0000:0000:00AB', '::ffff:203.0.113.77'],
  });
  const statusOf = async (client: string): Promise<number> => {
    const headers = [
      ['x-forwarded-for', client],
      ['x-api-key', liveKey],
    ] as const;
    return (await ask(gateway, { headers })).status;
  };
  const exits = [
    ...['198.51.100.9', '::ffff:198.51.100.9', '::FFFF:198.51.100.9', '::ffff:c633:6409', '0:0:0:0:0:ffff:c633:6409'],
    ...['0000:0000:0000:0000:0000:FFFF:198.51.100.9', '203.0.113.77', '::ffff:cb00:714d'],
    ...['2001:db8::ab', '2001:DB8::AB', '2001:db8:0:0:0:0:0:ab', '2001:0db8:0000:0000:0000:0000:0000:00ab'],
    ...['2001:db8::0.0.0.171', '2001:db8:0::0:ab'],
  ];
  for (const exit of exits) t.equal(await statusOf(exit), 401, exit);
  // These are not valid addresses: a zone, octal, short and decimal forms, a port, brackets.
  const invalid = [
    '2001:db8::ab%eth0',
    '0306.063.0144.011',
    '198.51.100.09',
    '198.3367945',
    '3325256713',
    '0xc6336409',
  ];
  for (const client of [...invalid, '198.51.100.9:80', '[2001:db8::ab]', '[2001:db8::ab]:80', '198.51.100.9.']) {
    t.equal(await statusOf(client), 400, client);
  }
  // The deprecated IPv4-compatible form is a different IPv6 address.
  for (const other of ['::198.51.100.9', '198.51.100.10', '2001:db8::ac']) t.equal(await statusOf(other), 200, other);
  t.equal(upstream.seen.length, 3);
});

/** Through a translator or a tunnel, an exit connects from an IPv6 address that embeds its IPv4 address. */
t.test('Tor evasion: no NAT64, 6to4 or Teredo address that embeds an exit evades the list', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, {
    upstreamUrl: upstream.url,
    config: { trustedProxies: ['127.0.0.1', '10.0.0.0/8'] },
    torExits: ['198.51.100.9', '2002:c000:201::7'],
  });
  const statusOf = async (client: string): Promise<number> => {
    const headers = [
      ['x-forwarded-for', client],
      ['x-api-key', liveKey],
    ] as const;
    return (await ask(gateway, { headers })).status;
  };
  for (const exit of [
    ...['64:ff9b::198.51.100.9', '64:ff9b::c633:6409', '0064:FF9B:0:0:0:0:C633:6409'], // NAT64
    ...['2002:c633:6409::', '2002:C633:6409:1:2:3:4:5'], // 6to4
    ...['2001::39cc:9bf6', '2001:0:c000:201:8000:1:39cc:9bf6'], // Teredo, which inverts the address bits
    '2002:c000:201::7', // an entry of the list
  ]) {
    t.equal(await statusOf(exit), 401, exit);
  }
  const others = [
    ...['64:ff9b::198.51.100.10', '64:ff9b::1:198.51.100.9', '2002:c000:201::8', '2002:c000:201::c633:6409'],
    ...['2001:0:c633:6409::', '2001:db8::39cc:9bf6', '2003:c633:6409::'],
  ];
  for (const other of others) t.equal(await statusOf(other), 200, other);
  t.same(
    upstream.seen.map(({ headers }) => headers['x-forwarded-for']),
    ['64:ff9b::c633:640a', '64:ff9b::1:c633:6409', ...others.slice(2)],
    'the client address itself is forwarded',
  );
  // 10.0.0.1 is a trusted proxy, but an IPv6 address that embeds 10.0.0.1 may be any client's. So the gateway ignores
  // the addresses to the left of that IPv6 address.
  for (const embedding of ['64:ff9b::a00:1', '2002:a00:1::', '2001::f5ff:fffe']) {
    t.equal(await statusOf(`198.51.100.9, ${embedding}`), 200, `${embedding} is the client`);
    t.match(gateway.lines.at(-1)?.client, { ip: embedding });
  }
});

/** A dual-stack listener reports IPv4 peers as IPv4-mapped IPv6 addresses. */
t.test('Tor evasion: an exit is recognised on a dual-stack listener (IPv4-mapped IPv6)', async (t) => {
  const upstream = await startUpstream(t);
  const responseTo = async (host: string, torExits: readonly string[]): Promise<string> => {
    const config = { listen: { https: { host: '::', port: 0 } } };
    const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, config, torExits });
    const bytes = requestBytes({ headers: [['x-api-key', liveKey]] });
    const { status, body } = parseResponse(await exchangeBytes(connect(gateway.https, gateway.ca, host), bytes));
    return `${status} ${(JSON.parse(body) as { message: string }).message}`;
  };
  t.equal(await responseTo('127.0.0.1', ['127.0.0.1']), '401 Tor traffic is not allowed');
  t.equal(await responseTo('::1', ['0:0:0:0:0:0:0:1']), '401 Tor traffic is not allowed');
  t.equal(await responseTo('127.0.0.1', ['::1', '127.0.0.2']), '200 OK');
});
