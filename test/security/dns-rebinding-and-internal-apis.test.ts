import { randomUUID } from 'node:crypto';
import http from 'node:http';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import t, { type Test } from 'tap';
import { startConfiguredServices } from '../../src/cli/compose/services.js';
import { loadConfig } from '../../src/config/load.js';
import { clientAddressOf, type RegistryAccess } from '../../src/registry/own-host.js';
import { startServices } from '../../src/services/start-services.js';
import { createLogger } from '../../src/telemetry/logger.js';
import { problemsOf } from '../config/problems-of.js';
import { ask, connect as connectGateway, exchangeBytes, liveKey, startTestGateway } from '../edge/harness.js';
import { ManualTime, until } from '../registry/manual-time.js';
import { registryFixture, token as adminToken } from '../registry/registry-fixture.js';
import { operatorsToken } from '../services/operators-fixture.js';
import { balanceOf } from '../services/services-fixture.js';

/*
 * A web page makes its own host name resolve to a loopback address. A browser on this machine then sends the page's
 * requests to local services, with any headers of its choice. But the Host header still has the name of the page.
 */

const forbidden = '{"success":false,"message":"Forbidden","data":{"code":"forbidden","errors":[]}}';

/** Starts services without `identity`. The returned functions send them a request with the given Host headers. */
async function servicesOf(t: Test, options = '') {
  const listening = 'services: { listen: { port: 0 }, database: { url: "sqlite::memory:" } }';
  const config = loadConfig({ text: `${listening}\n${options}` });
  const services = await startConfiguredServices(config, createLogger('fatal'));
  t.teardown(() => services.close());
  const port = Number(new URL(services.url).port);

  const responseTo = async (hosts: readonly string[], path = '/transactions', version = '1.1'): Promise<string> => {
    const socket = connect(port, '127.0.0.1');
    const lines = [...hosts.map((host) => `Host: ${host}`), 'x-merchant-id: m_1', 'x-merchant-environment: live'];
    socket.write(`GET ${path} HTTP/${version}\r\n${lines.join('\r\n')}\r\nconnection: close\r\n\r\n`);
    return text(socket);
  };
  const statusOf = async (...args: Parameters<typeof responseTo>): Promise<number> =>
    Number((await responseTo(...args)).split(' ')[1]);
  return { responseTo, statusOf, port };
}

const rejectedHosts = [
  ...['attacker.example', 'attacker.example:7080', 'localhost.attacker.example', '127.0.0.1.attacker.example'],
  ...[
    'attacker.example@127.0.0.1',
    '127.0.0.1@attacker.example',
    'localhost:7080:80',
    'localhost,localhost',
    'xlocalhost',
  ],
  ...['127.1', '0x7f.0.0.1', '2130706433', '127.0.0.256', '[::1', '::1', '[::2]', '10.0.0.1', '0.0.0.0', '', ':7080'],
];

t.test('DNS rebinding: a foreign host name is rejected with 403, whatever headers the page sends', async (t) => {
  const { responseTo, statusOf } = await servicesOf(t);
  for (const host of rejectedHosts) {
    const response = await responseTo([host]);
    t.match(response, /^HTTP\/1\.1 403 /, `Host: ${host}`);
    t.ok(response.endsWith(forbidden));
  }
  t.equal(await statusOf(['attacker.example'], '/nothing'), 403, 'an unknown path is rejected in the same way');
  t.equal(await statusOf(['localhost', 'attacker.example']), 403, 'two Host headers');
  t.equal(await statusOf(['attacker.example', 'localhost']), 403);
  t.equal(await statusOf(['localhost', 'localhost']), 403);
  t.equal(await statusOf([], '/transactions', '1.0'), 403, 'no Host header');
});

t.test('loopback hosts are served, on any port', async (t) => {
  const { statusOf, port } = await servicesOf(t);
  for (const name of ['localhost', 'LocalHost', '127.0.0.1', '127.9.8.7', '[::1]']) {
    for (const suffix of ['', ':80', `:${port}`]) t.equal(await statusOf([name + suffix]), 200, name + suffix);
  }
});

t.test('the hosts of the configured upstream URLs are served', async (t) => {
  const { statusOf } = await servicesOf(
    t,
    'upstreams: { customers: { url: "http://Core.Internal:7080" }, payouts: { url: "http://[fd00::0:7]" }, transactions: { url: "http://10.0.0.7:81" } }',
  );
  for (const host of [
    'core.internal:7080',
    'core.internal',
    'CORE.internal:1',
    '[fd00::7]',
    '10.0.0.7:81',
    'localhost',
  ]) {
    t.equal(await statusOf([host]), 200, host);
  }
  for (const host of ['internal', 'x.core.internal', 'core.internal.', '10.0.0.8']) {
    t.equal(await statusOf([host]), 403, host);
  }
});

t.test('DNS rebinding: probes and metrics are served by IP address, but not by a rebound name', async (t) => {
  const { statusOf } = await servicesOf(t);
  for (const path of ['/livez', '/readyz', '/metrics', '/openapi.json']) {
    for (const host of ['10.1.2.3:7080', '[2001:db8::7]:7080', '127.0.0.1', 'localhost:7080']) {
      t.equal(await statusOf([host], path), 200, `${path} at ${host}`);
    }
    t.equal(await statusOf([], path, '1.0'), 200, `${path} without a Host`);
    t.equal(await statusOf(['localhost', '127.0.0.1'], path), 403, `${path} with two Host headers`);
    for (const host of ['attacker.example', '10.1.2.3.attacker.example', '[2001:db8::7].attacker.example', '']) {
      t.equal(await statusOf([host], path), 403, `${path} at ${host}`);
    }
  }
});

const time = new ManualTime();
const parts = { assertions: null, clock: time, timers: time, bank: { delayMilliseconds: 1000, failingAccounts: [] } };
const operators = { host: '127.0.0.1', port: 0, token: operatorsToken, tls: null };
const merchantId = 'm_1';

const services = await startServices({
  ...{ host: '127.0.0.1', port: 0, databaseUrl: 'sqlite::memory:', operators },
  ...parts,
});
t.teardown(() => services.close());
const operatorsUrl = services.operatorsUrl ?? '';
const withToken = { authorization: `Bearer ${operatorsToken}` };

interface Sent {
  readonly method?: string;
  readonly headers?: http.OutgoingHttpHeaders;
  readonly body?: object;
}

async function sendTo(url: string, { method = 'GET', headers = {}, body }: Sent = {}) {
  const type = body === undefined ? {} : { 'content-type': 'application/json' };
  return new Promise<{ status: number; body: string }>((resolve, reject) => {
    const request = http.request(url, { method, headers: { ...type, ...headers }, agent: false }, (response) => {
      let text = '';
      response.on('data', (chunk: Buffer) => (text += chunk.toString()));
      response.on('end', () => {
        resolve({ status: response.statusCode ?? 0, body: text });
      });
    });
    request.on('error', reject);
    request.end(body === undefined ? undefined : JSON.stringify(body));
  });
}

const walletBody = { merchantId, environment: 'live', currency: 'NGN' };
const createdWallet = await sendTo(`${operatorsUrl}/wallets`, { method: 'POST', headers: withToken, body: walletBody });
const walletId = (JSON.parse(createdWallet.body) as { data: { id: string } }).data.id;
const movement = () => ({
  ...{ amount: 100, currency: 'NGN', environment: 'live', reference: randomUUID(), reason: 'An attack' },
});

/** Every route of the operators API. */
const routes = [
  ...[['GET', '/wallets'] as const, ['GET', `/wallets/${walletId}`] as const, ['GET', '/accounts'] as const],
  ...[['GET', `/wallets/${walletId}/entries`] as const, ['POST', '/wallets'] as const],
  ...[['POST', `/wallets/${walletId}/fund`] as const, ['POST', `/wallets/${walletId}/withdraw`] as const],
];

t.test('operators API without the token: no wallet is shown and no money moves', async (t) => {
  for (const [method, path] of [...routes, ['GET', '/metrics'] as const, ['GET', '/none'] as const]) {
    const body = method === 'POST' ? movement() : undefined;
    for (const headers of [
      ...[{}, { authorization: 'Bearer' }, { authorization: `Bearer ${operatorsToken}x` }],
      ...[{ authorization: `Bearer ${operatorsToken.slice(1)}` }, { authorization: `Basic ${operatorsToken}` }],
      ...[{ authorization: operatorsToken }, { 'x-api-key': operatorsToken }, { cookie: `token=${operatorsToken}` }],
    ]) {
      const response = await sendTo(`${operatorsUrl}${path}`, {
        method,
        headers,
        ...(body === undefined ? {} : { body }),
      });
      t.equal(response.status, 401, `${method} ${path} ${JSON.stringify(Object.keys(headers))}`);
    }
  }
  t.equal((await sendTo(`${operatorsUrl}/wallets?token=${operatorsToken}`)).status, 401);
  t.equal(await balanceOf(services.database, walletId), 0);
});

t.test('DNS rebinding to the operators API gets nothing without the token', async (t) => {
  for (const host of ['evil.example', 'localhost', '127.0.0.1:7081']) {
    const headers = { host, origin: `http://${host}` };
    t.equal((await sendTo(`${operatorsUrl}/wallets`, { headers })).status, 401, host);
    // Before a browser sends a token to another site it asks for permission by a preflight request, which must fail.
    const preflight = {
      ...headers,
      'access-control-request-method': 'POST',
      'access-control-request-headers': 'authorization',
    };
    const response = await sendTo(`${operatorsUrl}/wallets`, { method: 'OPTIONS', headers: preflight });
    t.equal(response.status, 401, `${host}: preflight`);
  }
});

t.test('the operators API rejects requests that the gateway forwarded, with or without the token', async (t) => {
  for (const header of ['x-merchant-id', 'x-gateway-assertion', 'X-Merchant-Id']) {
    for (const [method, path] of routes) {
      const body = method === 'POST' ? { body: movement() } : {};
      const response = await sendTo(`${operatorsUrl}${path}`, {
        method,
        headers: { ...withToken, [header]: '' },
        ...body,
      });
      t.equal(response.status, 403, `${method} ${path} ${header}`);
    }
  }
  t.equal(await balanceOf(services.database, walletId), 0);
});

t.test('no path through the gateway reaches an operation of the operators API', async (t) => {
  const upstream = { url: services.url };
  const gateway = await startTestGateway(t, {
    config: { upstreams: { transactions: upstream, payouts: upstream, customers: upstream } },
  });
  const headers = [['x-api-key', liveKey] as const, ['authorization', withToken.authorization] as const];
  const body = JSON.stringify(movement());
  const prefixes = [
    '',
    '/dev',
    '/dev/wallets/..',
    '/dev/payouts/../..',
    '/dev/wallets/%2e%2e',
    '/payouts',
    '/transactions',
  ];
  for (const prefix of prefixes) {
    for (const [method, path] of routes) {
      const target = `/v1${prefix}${path}`;
      const sent =
        method === 'POST'
          ? { body, headers: [...headers, ['content-type', 'application/json'] as const] }
          : { headers };
      const { status } = await ask(gateway, { method, path: target, ...sent });
      // A merchant can list its own wallets; no operation of the operators API may be reachable.
      const isOwn = method === 'GET' && prefix === '/dev' && path.startsWith('/wallets') && !path.endsWith('/entries');
      if (!isOwn) t.ok(status >= 400, `${method} ${target}: ${status}`);
    }
  }
  const absolute = `POST ${operatorsUrl}/wallets/${walletId}/fund HTTP/1.1\r\nhost: ${new URL(operatorsUrl).host}\r\n`;
  const response = await exchangeBytes(
    connectGateway(gateway.https, gateway.ca),
    `${absolute}x-api-key: ${liveKey}\r\nauthorization: ${withToken.authorization}\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\nconnection: close\r\n\r\n${body}`,
  );
  t.match(response, /^HTTP\/1\.1 4\d\d /);
  t.equal(await balanceOf(services.database, walletId), 0);
});

t.test('an upstream that points at the operators API by mistake gives no access to it', async (t) => {
  const upstream = { url: operatorsUrl };
  const gateway = await startTestGateway(t, {
    config: {
      upstreams: { transactions: upstream, payouts: upstream, customers: upstream },
      routes: [{ path: '/wallets', upstream: 'payouts', resource: 'wallets' }],
    },
  });
  const headers = [
    ['x-api-key', liveKey] as const,
    ['authorization', withToken.authorization] as const,
    ['content-type', 'application/json'] as const,
  ];
  const path = `/v1/wallets/${walletId}/fund`;
  const { status } = await ask(gateway, { method: 'POST', path, headers, body: JSON.stringify(movement()) });
  t.equal(status, 403);
  t.equal(await balanceOf(services.database, walletId), 0);
});

t.test('an upstream at any address of the operators API is a configuration error', (t) => {
  const problemsWith = (host: string, url: string): string[] => {
    const listen = { host, port: 7081, certFile: 'c', keyFile: 'k' };
    const services = { operators: { tokenFile: 't', listen } };
    return problemsOf({ text: JSON.stringify({ upstreams: { a: { url } }, routes: [], services }) });
  };
  const addresses = {
    '0.0.0.0': ['https://localhost:7081', 'https://127.9.8.7:7081', 'https://127.0.0.1:7081'],
    '::': ['https://[::1]:7081', 'https://[::ffff:127.0.0.1]:7081'],
    '::ffff:10.0.0.7': ['https://10.0.0.7:7081'],
    '127.0.0.1': ['https://localhost:7081', 'https://0.0.0.0:7081', 'https://[::]:7081'],
    '10.0.0.7': ['https://10.0.0.7:7081'],
    'FD00::7': ['https://[fd00::7]:7081'],
  };
  for (const [host, urls] of Object.entries(addresses)) {
    for (const url of urls) {
      const problem = /upstreams\.a\.url: is the address of the operators' API/;
      t.match(problemsWith(host, url), [problem], `${host}: ${url}`);
    }
  }
  for (const url of ['https://services.example:7081', 'https://localhost:7080', 'https://10.0.0.7:7081'])
    t.same(problemsWith('0.0.0.0', url), [], `${url} may be another machine or listener`);
  t.same(problemsWith('10.0.0.7', 'https://127.0.0.1:7081'), []);
  t.end();
});

t.test('the services that the gateway calls do not serve the routes of the operators API', async (t) => {
  for (const [method, path] of routes) {
    const body = method === 'POST' ? { body: movement() } : {};
    const headers = { ...withToken, 'x-merchant-id': merchantId, 'x-merchant-environment': 'live' };
    t.equal((await sendTo(`${services.url}${path}`, { method, headers, ...body })).status, 404, `${method} ${path}`);
  }
});

/** An admin API on loopback with this access. `statusOf` sends a request with a valid token, as a web page would. */
async function adminApi(t: Test, access: Partial<RegistryAccess> = {}) {
  const { app, call, time } = await registryFixture(t, 'sqlite::memory:', {
    access: { tls: null, hosts: [], behindProxy: null, ...access },
  });
  const statusOf = async (headers: Record<string, string>, path = '/merchants', remoteAddress = '127.0.0.1') => {
    const authorization = `Bearer ${adminToken}`;
    const response = await app.inject({ url: path, headers: { authorization, ...headers }, remoteAddress });
    return response.statusCode;
  };
  /** The sources and failure codes in the events that count the sign-ins rejected in the last minute. */
  const recorded = async (): Promise<unknown> => {
    time.advance(60_000);
    interface Failed {
      readonly source: string;
      readonly after: { readonly causes: unknown };
    }
    const list = () => call<Failed[]>('GET', '/events?action=sign-in.failed', { headers: { host: 'localhost' } });
    await until(async () => (await list()).body.data.length > 0);
    return (await list()).body.data.map(({ source, after }) => [source, after.causes]);
  };
  return { app, recorded, statusOf };
}

t.test('DNS rebinding: the admin API rejects a foreign host with 421 before it checks the token', async (t) => {
  const { app, recorded, statusOf } = await adminApi(t, { hosts: ['Registry.example', '[fd00::0:7]', '10.0.0.9'] });
  for (const host of rejectedHosts.filter((one) => one !== '')) t.equal(await statusOf({ host }), 421, `Host: ${host}`);
  const response = await app.inject({ url: '/merchants', headers: { host: 'attacker.example' } });
  t.match(response.json(), { success: false, message: /registry\.hosts/, data: { code: 'misdirected_request' } });
  for (const host of ['localhost', '127.0.0.1:9443', '[::1]', 'registry.example:9443', '[fd00::7]:1', '10.0.0.9']) {
    t.equal(await statusOf({ host }), 200, `Host: ${host}`);
  }
  for (const path of ['/livez', '/readyz', '/metrics', '/openapi.json']) {
    t.equal(await statusOf({ host: '10.1.2.3:9443' }, path), 200, `a probe of ${path} by address`);
    t.equal(await statusOf({ host: 'attacker.example' }, path), 421, `${path} by a rebound name`);
  }
  t.same(await recorded(), [['127.0.0.1', { misdirected_request: rejectedHosts.length + 4 }]], 'an event counts them');
});

t.test('a web page of another origin gets 403 from the admin API, also with the token', async (t) => {
  const { app, recorded, statusOf } = await adminApi(t);
  const host = 'localhost:9443';
  const foreign = [
    ...['https://attacker.example', 'null', 'http://localhost', 'https://localhost:9443', 'http://localhost:9443/'],
    ...['http://localhost:9443, https://attacker.example', 'http://localhost:9443@attacker.example', ''],
  ];
  for (const origin of foreign) t.equal(await statusOf({ host, origin }), 403, `Origin: ${origin}`);
  for (const site of ['cross-site', 'same-site', 'Same-Origin', '']) {
    t.equal(await statusOf({ host, 'sec-fetch-site': site }), 403, `Sec-Fetch-Site: ${site}`);
  }
  for (const site of ['same-origin', 'none']) t.equal(await statusOf({ host, 'sec-fetch-site': site }), 200, site);
  t.equal(await statusOf({ host, origin: 'http://localhost:9443' }), 200, 'its own origin');
  const response = await app.inject({ url: '/merchants', headers: { host, origin: 'https://attacker.example' } });
  t.match(response.json(), { data: { code: 'foreign_origin' } });
  t.same(await recorded(), [['127.0.0.1', { foreign_origin: foreign.length + 5 }]], 'an event counts them');
});

t.test('behind proxies, plain HTTP from other peers is rejected, and only proxies name the client', async (t) => {
  const { app, statusOf } = await adminApi(t, { behindProxy: ['10.0.0.0/30'], hosts: ['registry.example'] });
  const seen: (string | undefined)[] = [];
  app.addHook('onRequest', (request, _reply, done) => {
    seen.push(clientAddressOf(request)?.text);
    done();
  });
  const headers = { host: 'registry.example', 'x-forwarded-for': '203.0.113.9, 10.0.0.2' };
  t.equal(await statusOf(headers, '/merchants', '10.0.0.1'), 200, 'from a proxy');
  t.equal(await statusOf(headers, '/merchants', '127.0.0.1'), 200, 'from loopback');
  t.equal(await statusOf({ ...headers, origin: 'https://registry.example' }, '/merchants', '10.0.0.1'), 200);
  t.equal(await statusOf({ ...headers, 'x-forwarded-for': 'unknown' }, '/merchants', '10.0.0.1'), 200);
  t.same(seen.splice(0), ['203.0.113.9', '127.0.0.1', '203.0.113.9', undefined]);
  for (const peer of ['10.0.0.4', '203.0.113.9', '::ffff:10.0.0.4']) {
    t.equal(await statusOf(headers, '/merchants', peer), 403, `from ${peer}`);
    t.equal(await statusOf(headers, '/livez', peer), 200, `a probe from ${peer}`);
  }
  t.same([...new Set(seen)], ['10.0.0.4', '203.0.113.9'], 'others cannot name a client');
});

t.test('behind proxies, nobody signs in over plain HTTP or by a foreign address', async (t) => {
  const { app } = await adminApi(t, { behindProxy: ['10.0.0.0/30'], hosts: ['registry.example'] });
  const statusOf = async (url: string, host: string, remoteAddress: string): Promise<number> => {
    const { statusCode } = await app.inject({ method: 'POST', url, headers: { host }, remoteAddress, payload: {} });
    return statusCode;
  };
  for (const url of ['/sign-in/device', '/sign-in/token', '/sign-in/refresh']) {
    t.not(await statusOf(url, 'registry.example', '10.0.0.1'), 403, `${url} from a proxy`);
    t.equal(await statusOf(url, 'registry.example', '10.0.0.4'), 403, `${url} over plain HTTP`);
    t.equal(await statusOf(url, '192.0.2.1', '10.0.0.1'), 421, `${url} by an address`);
  }
});
