import t from 'tap';
import { createRouteTable } from '../../src/edge/request/routes.js';
import { ask, connect, exchangeBytes, liveKey, parseResponse, recordsOf, requestBytes } from './harness.js';
import { startTestGateway, startUpstream, testKey } from './harness.js';
import type { Ask, RawResponse } from './harness.js';
import { emptyList } from '../empty-list.js';

const key = ['x-api-key', liveKey] as const;
const headers = [key];
const path = '/v1/whoami';
const dataOf = ({ body }: RawResponse): Record<string, unknown> =>
  (JSON.parse(body) as { data: Record<string, unknown> }).data;

t.test('whoami shows the key and its client, and calls no upstream', async (t) => {
  const upstream = await startUpstream(t);
  const expiresAt = '2999-01-31T12:00:00.000Z';
  const gateway = await startTestGateway(t, {
    upstreamUrl: upstream.url,
    records: recordsOf(liveKey, {
      key: { permissions: ['payouts:write', 'wallets:*'], label: 'till 7', expiresAt, graceEndsAt: expiresAt },
      merchant: { ipAllowlist: ['127.0.0.0/8'] },
    }),
  });
  const response = await ask(gateway, { path: `${path}?x=1`, headers });
  const { requestId, time, ...data } = dataOf(response);
  t.same(data, {
    merchant: { id: 'm_1', name: 'Test Merchant' },
    key: {
      id: 'key_1',
      label: 'till 7',
      permissions: ['payouts:write', 'wallets:*'],
      expiresAt,
      graceEndsAt: expiresAt,
    },
    environment: 'live',
    client: { address: '127.0.0.1', source: 'peer', onIpAllowlist: true },
  });
  t.equal(requestId, response.header('x-request-id'));
  t.match(time, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
  t.match(response, { status: 200, body: /^\{"success":true,"message":"The key is valid","data":\{/ });
  t.same(
    response.headers.map(([name]) => name).filter((name) => name !== 'date' && name !== 'connection'),
    [
      ...['strict-transport-security', 'x-request-id', 'content-type', 'content-length', 'cache-control'],
      'x-content-type-options',
    ],
  );
  t.equal(response.header('content-type'), 'application/json; charset=utf-8');
  t.equal(response.header('content-length'), String(response.body.length));
  t.equal(response.header('cache-control'), 'no-store');
  t.equal(response.header('x-content-type-options'), 'nosniff');

  const head = await ask(gateway, { method: 'HEAD', path, headers });
  t.match(head, { status: 200, body: '' });
  t.ok(Number(head.header('content-length')) > 100);
  t.same(upstream.seen, []);
  t.equal(upstream.sockets.size, 0);
  const line = {
    event: { code: 'accepted', outcome: 'success', type: ['access', 'allowed'] },
    http: { response: { status_code: 200, body: { bytes: response.body.length } } },
    gateway: { route: '/whoami', key: { id: 'key_1' } },
    organization: { id: 'm_1' },
  };
  t.match(gateway.lines[0], line);
  t.notOk('upstream' in (gateway.lines[0]?.gateway as object), 'the line names no upstream');
  const metrics = await (await fetch(`http://127.0.0.1:${gateway.management}/metrics`)).text();
  t.match(metrics, 'gateway_requests_total{code="accepted",status="200",route="/whoami",environment="live"} 2');
  t.same(gateway.internalErrors, []);
});

t.test('what the records lack is null, and no permission is needed', async (t) => {
  const gateway = await startTestGateway(t, { records: recordsOf(liveKey, { key: { permissions: [] } }) });
  const data = dataOf(await ask(gateway, { path, headers }));
  t.match(data, {
    key: { label: null, permissions: emptyList, expiresAt: null, graceEndsAt: null },
    client: { onIpAllowlist: null },
  });
  t.equal((await ask(gateway, { path: '/v1/transactions', headers })).status, 403);
  t.match(await ask(gateway, { path: '/v1/openapi.json', headers }), { status: 200, body: '{}' });
});

t.test('whoami says where the client address comes from', async (t) => {
  const gateway = await startTestGateway(t, { config: { trustedProxies: ['127.0.0.1'] } });
  const forwarded = [key, ['x-forwarded-for', '203.0.113.7'], ['x-forwarded-proto', 'https']] as const;
  const seen = { address: '203.0.113.7', source: 'x-forwarded-for', onIpAllowlist: null };
  t.same(dataOf(await ask(gateway, { path, headers: forwarded })).client, seen);
  const own = [key, ['x-forwarded-for', '127.0.0.1'], ['x-forwarded-proto', 'https']] as const;
  const itself = { address: '127.0.0.1', source: 'x-forwarded-for' };
  t.match(dataOf(await ask(gateway, { path, headers: own })).client, itself);
});

t.test('texts of a merchant are escaped', async (t) => {
  const label = '"\\</script>\u2028é\u202e😀\u007f';
  const gateway = await startTestGateway(t, { records: recordsOf(liveKey, { key: { label } }) });
  const response = await ask(gateway, { path, headers });
  t.match(response.body, /^[\u0020-\u007e]+$/, 'only printable ASCII');
  t.equal(response.header('content-length'), String(response.body.length));
  t.match(dataOf(response), { key: { label } });
});

t.test('other methods are 405 and other paths 404, after the key', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const rows: readonly [Ask, number][] = [
    ...['POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE', 'PROPFIND'].map((method): [Ask, number] => [
      { method, path },
      405,
    ]),
    [{ method: 'POST', path: '/v1/openapi.json', body: '{}' }, 405],
    ...['/', '/x', '.json', ';x', '%20'].map((more): [Ask, number] => [{ path: path + more }, 404]),
    ...['/v1/Whoami', '/v1/%77hoami', '/whoami', '/v1/openapi', '/v1/openapi.yaml', '/v1/openapi.json/x'].map(
      (other): [Ask, number] => [{ path: other }, 404],
    ),
    [{ path: '/v1/whoami//' }, 400],
  ];
  for (const [what, status] of rows) {
    const response = await ask(gateway, { ...what, headers });
    t.equal(response.status, status, `${what.method ?? 'GET'} ${what.path ?? ''}`);
    t.equal(response.header('allow'), status === 405 ? 'GET, HEAD' : undefined);
    t.equal((await ask(gateway, what)).status, 401, 'without a key nobody learns which paths exist');
  }
  t.same(upstream.seen, []);
  t.match(gateway.lines[0], { event: { reason: 'POST is not a method of this route' } });
});

t.test('a body that no one reads does no harm, nor does the next request of the connection', async (t) => {
  const gateway = await startTestGateway(t);
  const withBody = parseResponse(
    await exchangeBytes(
      connect(gateway.https, gateway.ca),
      requestBytes({ path, headers: [key, ['expect', '100-continue']], body: 'x'.repeat(100) }),
    ),
  );
  t.equal(withBody.status, 200);
  const one = `GET ${path} HTTP/1.1\r\nHost: localhost\r\nx-api-key: ${liveKey}\r\n\r\n`;
  const both = await exchangeBytes(
    connect(gateway.https, gateway.ca),
    one + requestBytes({ path, headers: [['x-api-key', 'svc_live_wrong']] }),
  );
  t.match(both, /^HTTP\/1\.1 200 [^]*HTTP\/1\.1 401 /, 'two requests of one connection, one after the other');
  t.same(gateway.internalErrors, []);
});

t.test('the gateway serves its description as it is given', async (t) => {
  const publicApi = JSON.stringify({ openapi: '3.1.0', info: { description: 'svc_live_…' }, x: 'y'.repeat(50_000) });
  const config = { basePath: '/api/v2', environment: 'test' } as const;
  const gateway = await startTestGateway(t, { publicApi, config, records: recordsOf(testKey) });
  const response = await ask(gateway, { path: '/api/v2/openapi.json', headers: [['x-api-key', testKey]] });
  t.same(JSON.parse(response.body), JSON.parse(publicApi));
  t.equal(response.header('content-length'), String(response.body.length));
  const data = dataOf(await ask(gateway, { path: '/api/v2/whoami', headers: [['x-api-key', testKey]] }));
  t.equal(data.environment, 'test');
});

t.test('a rate limit counts these requests too', async (t) => {
  const gateway = await startTestGateway(t, { config: { rateLimit: { requestsPerSecond: 1, burst: 1 } } });
  const responses = await Promise.all(Array.from({ length: 6 }, () => ask(gateway, { path, headers })));
  t.ok(responses.some(({ status }) => status === 429));
  for (const response of responses) t.equal(response.header('ratelimit-limit'), '1');
});

t.test('a configured route replaces the own route of the same path, and no other', async (t) => {
  const routeOf = (paths: readonly string[], path: string): string | null => {
    const routes = paths.map((one) => ({ path: one, upstream: 'service', resource: 'any' }));
    const place = createRouteTable({ basePath: '/v1', routes })(path);
    return 'route' in place ? `${place.route.path} of ${place.route.upstream ?? 'the gateway'}` : null;
  };
  t.equal(routeOf(['/whoami'], '/v1/whoami'), '/whoami of service');
  t.equal(routeOf(['/whoami'], '/v1/whoami/x'), '/whoami of service');
  t.equal(routeOf(['/whoami'], '/v1/openapi.json'), '/openapi.json of the gateway');
  t.equal(routeOf(['/whoami/x'], '/v1/whoami'), '/whoami of the gateway');
  t.equal(routeOf(['/whoami/x'], '/v1/whoami/x'), '/whoami/x of service');
  t.equal(routeOf(['/whoami/x'], '/v1/whoami/y'), null);
  t.equal(routeOf(['/openapi'], '/v1/openapi'), '/openapi of service');
  t.equal(routeOf(['/openapi'], '/v1/openapi.json'), '/openapi.json of the gateway');
  t.equal(routeOf(['/openapi'], '/v1/openapi.json/x'), null);
  t.equal(routeOf(['/openapi/x'], '/v1/openapi.json/x'), null);

  const upstream = await startUpstream(t);
  const routes = [{ path: '/whoami', upstream: 'payouts', resource: 'payouts' }];
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, config: { routes } });
  t.equal((await ask(gateway, { method: 'POST', path, headers })).status, 200);
  t.equal(upstream.seen.length, 1);
});
