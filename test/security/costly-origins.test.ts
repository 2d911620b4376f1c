import t from 'tap';
import { compileOriginPatterns, namesOnionService } from '../../src/policy/origins.js';
import { ask, liveKey, startTestGateway, startUpstream } from '../edge/harness.js';

/** As an Origin of a head that is as long as it may be. What is no plain ASCII takes a third of a microsecond a character. */
const long = (start: string): string => start + '\u{bc}\u{c4}'.repeat(3_000);

// Without any key: a few kilobytes a second of such values took all of a worker's time.
t.test('what takes long to read is refused as an onion service unread, and what is behind a host is not read', (t) => {
  const shop = 'https://shop.ex\u{e4}mple';
  const refused: Record<string, readonly string[]> = {
    'a long name': [long('https://')],
    'a long name without a scheme': [long('')],
    'a long name behind slashes': [long('https:///\\\t/')],
    'a long user': [`${long('https://')}@shop.example/`],
    'a long encoded name': [`https://${'%E4%B8%AD'.repeat(100)}/`],
    'a long name in punycode': [`https://${'xn--bcher-kva.'.repeat(50)}onions/`],
    'many names': [shop, 'https://sh\u{f6}p.example', 'https://sh%C3%B6p.example'],
    'one name often': Array.from({ length: 200 }, () => shop),
  };
  for (const [what, values] of Object.entries(refused)) t.ok(namesOnionService(values), what);
  const taken: Record<string, readonly string[]> = {
    'a long path': [long(`${shop}/`)],
    'a long query': [long('https://shop.example?')],
    'a long fragment': [long('https://shop.example#')],
    'two names': [shop, 'https://sh%C3%B6p.example'],
    'many encoded paths': Array.from({ length: 200 }, () => 'https://shop.example/a%20b'),
    'many plain names': Array.from({ length: 200 }, () => 'https://shop.example'),
    'a long plain name': [`https://${'a'.repeat(5_000)}/`],
  };
  for (const [what, values] of Object.entries(taken)) t.notOk(namesOnionService(values), what);
  t.end();
});

t.test('what is cut off to read a host hides none', (t) => {
  const onion = 'abc.on\u{ad}ion';
  for (const value of [
    ...[
      `https://${onion}`,
      `https://${onion}/`,
      `https:////${onion}/a`,
      `https://\\\t/${onion}\\a`,
      `https://${onion}?://`,
    ],
    ...[
      ` https://${onion}#a`,
      `${onion}/a`,
      `${onion}?a`,
      `a:b@${onion}:8443/`,
      `https://a:@b@${onion}`,
      `htt\tps://${onion}`,
    ],
    ...['https://443 /a.onion', 'foo://a.onion/b', 'foo://a b/c.onion'],
  ]) {
    t.ok(namesOnionService([value]), JSON.stringify(value));
  }
  t.end();
});

t.test('a name that is too long to be one is on no allowlist', (t) => {
  const list = compileOriginPatterns(['xn--4ca0bs']);
  const name = '\u{e4}\u{f6}\u{fc}'; // the same
  for (const [header, scheme] of [
    ['origin', 'https://'],
    ['referer', 'https://'],
    ['host', ''],
  ] as const) {
    t.ok(list.matches({ header, value: scheme + name }), header);
    t.notOk(
      list.matches({ header, value: scheme + '\u{ad}'.repeat(400) + name }),
      `${header}, with much that is not read`,
    );
  }
  t.end();
});

t.test('such a request is answered as one from an onion service, before anybody looks at its key', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const key = ['x-api-key', liveKey] as const;
  for (const header of ['origin', 'referer']) {
    const { status, body } = await ask(gateway, { headers: [key, [header, long('https://')]] });
    t.strictSame([status, body], [401, '{"success":false,"message":"Tor traffic is not allowed","data":null}'], header);
    const one = [header, 'https://sh\u{f6}p.example'] as const;
    t.equal((await ask(gateway, { headers: [key, one, one, one] })).status, 401, `${header} three times`);
    t.equal((await ask(gateway, { headers: [key, one, one] })).status, 200, `${header} twice`);
  }
  t.equal(
    (await ask(gateway, { headers: [key, ['referer', long('https://shop.example/')]] })).status,
    200,
    'a long path',
  );
});
