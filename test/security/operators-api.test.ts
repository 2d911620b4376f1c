import { randomUUID } from 'node:crypto';
import http from 'node:http';
import t from 'tap';
import { startServices } from '../../src/services/start-services.js';
import { ask, connect, exchangeBytes, liveKey, startTestGateway } from '../edge/harness.js';
import { ManualTime } from '../registry/manual-time.js';
import { operatorsToken } from '../services/operators-fixture.js';
import { balanceOf } from '../services/services-fixture.js';

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
const right = { authorization: `Bearer ${operatorsToken}` };

interface Sent {
  readonly method?: string;
  readonly headers?: http.OutgoingHttpHeaders;
  readonly body?: object;
}

async function send(url: string, { method = 'GET', headers = {}, body }: Sent = {}) {
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

const wallet = { merchantId, environment: 'live', currency: 'NGN' };
const made = await send(`${operatorsUrl}/wallets`, { method: 'POST', headers: right, body: wallet });
const walletId = (JSON.parse(made.body) as { data: { id: string } }).data.id;
const movement = () => ({
  ...{ amount: 100, currency: 'NGN', environment: 'live', reference: randomUUID(), reason: 'An attack' },
});

/** Every route of the operators' API, below its address. */
const routes = [
  ...[['GET', '/wallets'] as const, ['GET', `/wallets/${walletId}`] as const, ['GET', '/accounts'] as const],
  ...[['GET', `/wallets/${walletId}/entries`] as const, ['POST', '/wallets'] as const],
  ...[['POST', `/wallets/${walletId}/fund`] as const, ['POST', `/wallets/${walletId}/withdraw`] as const],
];

t.test('without the token nobody sees a wallet or moves money', async (t) => {
  for (const [method, path] of [...routes, ['GET', '/metrics'] as const, ['GET', '/none'] as const]) {
    const body = method === 'POST' ? movement() : undefined;
    for (const headers of [
      ...[{}, { authorization: 'Bearer' }, { authorization: `Bearer ${operatorsToken}x` }],
      ...[{ authorization: `Bearer ${operatorsToken.slice(1)}` }, { authorization: `Basic ${operatorsToken}` }],
      ...[{ authorization: operatorsToken }, { 'x-api-key': operatorsToken }, { cookie: `token=${operatorsToken}` }],
    ]) {
      const answer = await send(`${operatorsUrl}${path}`, { method, headers, ...(body === undefined ? {} : { body }) });
      t.equal(answer.status, 401, `${method} ${path} ${JSON.stringify(Object.keys(headers))}`);
    }
  }
  t.equal((await send(`${operatorsUrl}/wallets?token=${operatorsToken}`)).status, 401);
  t.equal(await balanceOf(services.database, walletId), 0);
});

t.test('a page whose name leads to this machine gets nothing without the token', async (t) => {
  for (const host of ['evil.example', 'localhost', '127.0.0.1:7081']) {
    const headers = { host, origin: `http://${host}` };
    t.equal((await send(`${operatorsUrl}/wallets`, { headers })).status, 401, host);
    // A browser asks first whether it may send the header of a token to another site, and is not told that it may.
    const preflight = {
      ...headers,
      'access-control-request-method': 'POST',
      'access-control-request-headers': 'authorization',
    };
    const answer = await send(`${operatorsUrl}/wallets`, { method: 'OPTIONS', headers: preflight });
    t.equal(answer.status, 401, `${host}: preflight`);
  }
});

t.test('what the gateway has forwarded is refused, token or not: the headers are its own', async (t) => {
  for (const header of ['x-merchant-id', 'x-gateway-assertion', 'X-Merchant-Id']) {
    for (const [method, path] of routes) {
      const body = method === 'POST' ? { body: movement() } : {};
      const answer = await send(`${operatorsUrl}${path}`, { method, headers: { ...right, [header]: '' }, ...body });
      t.equal(answer.status, 403, `${method} ${path} ${header}`);
    }
  }
  t.equal(await balanceOf(services.database, walletId), 0);
});

t.test('no path through the gateway leads to an operation of operators', async (t) => {
  const upstream = { url: services.url };
  const gateway = await startTestGateway(t, {
    config: { upstreams: { transactions: upstream, payouts: upstream, customers: upstream } },
  });
  const headers = [['x-api-key', liveKey] as const, ['authorization', right.authorization] as const];
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
      // The merchant's own list of its own wallets is there; nothing that operators have is.
      const isOwn = method === 'GET' && prefix === '/dev' && path.startsWith('/wallets') && !path.endsWith('/entries');
      if (!isOwn) t.ok(status >= 400, `${method} ${target}: ${status}`);
    }
  }
  const absolute = `POST ${operatorsUrl}/wallets/${walletId}/fund HTTP/1.1\r\nhost: ${new URL(operatorsUrl).host}\r\n`;
  const answer = await exchangeBytes(
    connect(gateway.https, gateway.ca),
    `${absolute}x-api-key: ${liveKey}\r\nauthorization: ${right.authorization}\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\nconnection: close\r\n\r\n${body}`,
  );
  t.match(answer, /^HTTP\/1\.1 4\d\d /);
  t.equal(await balanceOf(services.database, walletId), 0);
});

t.test('an upstream that leads to the operators’ API by mistake opens nothing', async (t) => {
  const upstream = { url: operatorsUrl };
  const gateway = await startTestGateway(t, {
    config: {
      upstreams: { transactions: upstream, payouts: upstream, customers: upstream },
      routes: [{ path: '/wallets', upstream: 'payouts', resource: 'wallets' }],
    },
  });
  const headers = [
    ['x-api-key', liveKey] as const,
    ['authorization', right.authorization] as const,
    ['content-type', 'application/json'] as const,
  ];
  const path = `/v1/wallets/${walletId}/fund`;
  const { status } = await ask(gateway, { method: 'POST', path, headers, body: JSON.stringify(movement()) });
  t.equal(status, 403);
  t.equal(await balanceOf(services.database, walletId), 0);
});

t.test('the routes of operators are none of the services that the gateway asks', async (t) => {
  for (const [method, path] of routes) {
    const body = method === 'POST' ? { body: movement() } : {};
    const headers = { ...right, 'x-merchant-id': merchantId, 'x-merchant-environment': 'live' };
    t.equal((await send(`${services.url}${path}`, { method, headers, ...body })).status, 404, `${method} ${path}`);
  }
});
