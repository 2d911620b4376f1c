import t from 'tap';
import { MaintainedTorExits } from '../../src/adapters/tor/maintained-tor-exits.js';
import type { GeoIp } from '../../src/gateway/ports.js';
import { content, hour, TestWorld } from '../adapters/tor-maintenance-fixture.js';
import { ask, liveKey, startTestGateway, startUpstream } from './harness.js';
import type { GatewaySetup, GatewayUnderTest } from './harness.js';
import { emptyList } from '../empty-list.js';

const proxied = { config: { trustedProxies: ['127.0.0.1'] } };
const url = 'https://a.test/list';

function from(client: string, key: string | null = liveKey): (readonly [string, string])[] {
  const headers = [['x-forwarded-for', client]] as const;
  return key === null ? [...headers] : [...headers, ['x-api-key', key]];
}

/**
 * Sends a request from this client address. Returns the status of the response, the code in its line of the access log,
 * and its message.
 */
async function outcome(gateway: GatewayUnderTest, client: string, key: string | null = liveKey): Promise<string> {
  const before = gateway.lines.length;
  const { status, body } = await ask(gateway, { headers: from(client, key) });
  const deadline = Date.now() + 30_000;
  while (gateway.lines.length === before && Date.now() < deadline)
    await new Promise((resolve) => setTimeout(resolve, 1));
  const line = gateway.lines[before] as { event: { code: string } };
  return `${status} ${line.event.code} ${(JSON.parse(body) as { message: string }).message}`;
}

interface Readiness {
  readonly status: number;
  readonly body: { readonly problems: string[]; readonly details: { readonly torExits: object } };
}

async function readiness({ management }: GatewayUnderTest): Promise<Readiness> {
  const response = await fetch(`http://127.0.0.1:${management}/readyz`);
  return { status: response.status, body: (await response.json()) as Readiness['body'] };
}

async function start(t: Parameters<typeof startTestGateway>[0], setup: GatewaySetup) {
  const upstream = await startUpstream(t);
  return { upstream, gateway: await startTestGateway(t, { ...proxied, upstreamUrl: upstream.url, ...setup }) };
}

/** Databases in which 203.0.113.7 is a Tor exit in Sweden, and which do not know whether 203.0.113.99 is an exit. */
const databases: GeoIp = {
  locate: ({ text }) => ({ countryIsoCode: text === '203.0.113.7' ? 'SE' : null, asNumber: 64_500 }),
  isTorExit: ({ text }) => (text === '203.0.113.99' ? null : text === '203.0.113.7'),
  close: () => undefined,
};

t.test('without a list the gateway is not ready, and requests are neither accepted nor denied', async (t) => {
  const world = new TestWorld();
  const { exits } = world.open(t.testdir(), { from: [url] });
  const { gateway, upstream } = await start(t, { torExits: exits });
  t.match(await readiness(gateway), {
    status: 503,
    body: {
      problems: ['Tor exits: no Tor exit list is loaded yet'],
      details: { torExits: { available: false, size: 0 } },
    },
  });
  const refused = '503 tor_list_unavailable Service temporarily unavailable';
  t.equal(await outcome(gateway, '198.51.100.9'), refused);
  t.equal(await outcome(gateway, '198.51.100.9', 'svc_live_unknown'), refused, 'for any key');
  t.equal(await outcome(gateway, '198.51.100.9', null), refused, 'without a key');
  const response = await ask(gateway, { headers: from('198.51.100.9') });
  t.equal(response.header('retry-after'), '1');
  const onion = await ask(gateway, { headers: [...from('198.51.100.9'), ['origin', 'https://x.onion']] });
  t.equal(onion.status, 401, 'a denial that needs no list is still decided');
  const plain = await ask(gateway, { headers: [...from('198.51.100.9'), ['x-forwarded-proto', 'http']] });
  t.match(plain.body, 'API requests must use HTTPS');
  t.equal(upstream.seen.length, 0);
  const metrics = await (await fetch(`http://127.0.0.1:${gateway.management}/metrics`)).text();
  t.match(metrics, /^gateway_key_lookup_duration_seconds_count\{source="unavailable"\} 0$/m, 'no key was looked up');

  world.responses.set(url, content(['198.51.100.9']));
  await exits.tick();
  t.match(await readiness(gateway), {
    status: 200,
    body: { problems: emptyList, details: { torExits: { available: true, size: 1 } } },
  });
  t.equal(await outcome(gateway, '198.51.100.9'), '401 tor_blocked Tor traffic is not allowed');
  t.equal(await outcome(gateway, '198.51.100.10'), '200 accepted OK');

  world.now += 49 * hour;
  t.match(await readiness(gateway), {
    status: 503,
    body: { problems: ['Tor exits: the list is older than torExits.maxAgeHours'] },
  });
  t.equal(await outcome(gateway, '198.51.100.10'), refused);
});

t.test('with whenUnavailable "allow" the gateway is ready and treats no client as an exit', async (t) => {
  const { exits } = new TestWorld().open(t.testdir(), { from: [url], denyWhenUnavailable: false });
  const { gateway } = await start(t, { torExits: exits });
  t.match(await readiness(gateway), { status: 200, body: { details: { torExits: { available: false } } } });
  t.equal(await outcome(gateway, '198.51.100.9'), '200 accepted OK');
});

t.test('the digest of the deciding list is in the line of the refused request and in the metrics', async (t) => {
  const world = new TestWorld();
  world.responses.set(url, content(['198.51.100.9', '2001:db8::5']));
  const { exits } = world.open(t.testdir(), { from: [url] });
  await exits.tick();
  const { gateway } = await start(t, { torExits: exits, geoIp: databases });
  for (const client of ['198.51.100.9', '203.0.113.7', '192.0.2.1']) await outcome(gateway, client);
  await ask(gateway, { headers: [...from('192.0.2.1'), ['origin', 'https://x.onion']] });
  const digests = gateway.lines.slice(0, 3).map((line) => (line.gateway as { tor_list?: object }).tor_list);
  t.same(digests, [{ digest: exits.digest }, undefined, undefined]);
  const metrics = await (await fetch(`http://127.0.0.1:${gateway.management}/metrics`)).text();
  t.match(metrics, `gateway_tor_list_info{digest="${exits.digest ?? ''}"} 1`);
  t.match(metrics, /^gateway_tor_list_entries 2$/m);
  t.match(metrics, /^gateway_tor_list_available 1$/m);
});

t.test('the GeoIP database is a second source: it adds exits and removes none', async (t) => {
  const { gateway } = await start(t, { torExits: ['198.51.100.9'], geoIp: databases });
  t.equal(await outcome(gateway, '198.51.100.9'), '401 tor_blocked Tor traffic is not allowed');
  t.equal(await outcome(gateway, '203.0.113.7'), '401 tor_blocked Tor traffic is not allowed');
  t.equal(await outcome(gateway, '192.0.2.1'), '200 accepted OK');
  t.match(
    await outcome(gateway, '203.0.113.99'),
    /^503 tor_list_unavailable/,
    'an address without a result in the database is undecided',
  );
});

t.test("the line has the client's country and autonomous system, if known", async (t) => {
  const { gateway } = await start(t, { geoIp: databases });
  await outcome(gateway, '203.0.113.7');
  await outcome(gateway, '192.0.2.1');
  t.match(gateway.lines[0]?.client, { ip: '203.0.113.7', geo: { country_iso_code: 'SE' }, as: { number: 64_500 } });
  t.match(gateway.lines[1]?.client, { ip: '192.0.2.1', geo: undefined, as: { number: 64_500 } });
});

t.test('a drain closes the list and the databases', async (t) => {
  let closed = 0;
  const { exits } = new TestWorld().open(t.testdir(), { from: [url] });
  exits.close = () => {
    closed += 1;
    return Promise.resolve();
  };
  t.ok(exits instanceof MaintainedTorExits);
  const close = (): number => (closed += 10);
  const { gateway } = await start(t, { torExits: exits, geoIp: { ...databases, close } });
  await gateway.drain();
  t.equal(closed, 11);
});
