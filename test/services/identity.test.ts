import t from 'tap';
import { Refusal } from '../../src/rest/refusal.js';
import { merchantA, servicesFixture } from './services-fixture.js';

const forbidden = {
  status: 403,
  body: { success: false, message: 'Forbidden', data: { code: 'forbidden', errors: [] } },
};

t.test('without assertions only loopback peers are accepted', async (t) => {
  const { call } = await servicesFixture(t);
  for (const from of ['127.0.0.1', '127.8.9.10', '::1', '::ffff:127.0.0.1', '::FFFF:127.0.0.1']) {
    t.equal((await call(merchantA, 'GET', '/transactions', { from })).status, 200, from);
  }
  for (const from of [
    '10.0.0.1',
    '192.0.2.1',
    '::',
    '0.0.0.0',
    '::ffff:10.0.0.1',
    '2001:db8::127.0.0.1',
    '1127.0.0.1',
    '::1:1',
  ]) {
    t.same(await call(merchantA, 'GET', '/transactions', { from }), forbidden, from);
  }
  const headers = { 'x-forwarded-for': '127.0.0.1', 'x-real-ip': '127.0.0.1', forwarded: 'for=127.0.0.1' };
  t.same(
    await call(merchantA, 'GET', '/transactions', { from: '10.0.0.1', headers }),
    forbidden,
    'headers do not change the peer address',
  );
});

t.test('a request needs exactly one merchant and one environment', async (t) => {
  const { call } = await servicesFixture(t);
  const cases: [merchantId: string | null, environment: string | null][] = [
    [null, 'live'],
    ['merchant_a', null],
    [null, null],
    ['', 'live'],
    ['merchant a', 'live'],
    ['merchant_a, merchant_b', 'live'],
    ["m' or '1'='1", 'live'],
    ['m'.repeat(65), 'live'],
    ['merchant_a', 'LIVE'],
    ['merchant_a', 'live, live'],
    ['merchant_a', 'production'],
  ];
  for (const [merchantId, environment] of cases) {
    const headers = {
      ...(merchantId === null ? {} : { 'x-merchant-id': merchantId }),
      ...(environment === null ? {} : { 'x-merchant-environment': environment }),
    };
    t.same(await call(null, 'GET', '/transactions', { headers }), forbidden, JSON.stringify(headers));
  }
});

t.test('without an identity every request gets 403: no path is revealed, and no body is parsed', async (t) => {
  const { call } = await servicesFixture(t);
  t.same(await call(null, 'GET', '/nothing'), forbidden);
  t.same(await call(null, 'PUT', '/transactions'), forbidden);
  t.same(await call(null, 'POST', '/dev/payouts', { payload: '{' }), forbidden);
  t.same(await call(null, 'POST', '/dev/payouts'), forbidden);
  t.same(await call(merchantA, 'POST', '/dev/payouts', { payload: '{', from: '10.0.0.1' }), forbidden);
});

t.test('only health, metrics and the description need no identity, and they contain no merchant data', async (t) => {
  const assertions = { verify: () => Promise.reject(new Refusal(403, 'Forbidden')) };
  const { app, call } = await servicesFixture(t, { assertions });
  await app.ready();
  const above: string[] = [];
  const routes: (readonly [method: 'GET', path: string])[] = [];
  const printed = app.printRoutes({ commonPrefix: false });
  for (const [, lead = '', part = '', methods = ''] of printed.matchAll(/^(.*)[├└]── (\S+) \(([A-Z, -]+)\)$/gm)) {
    above.splice(lead.length / 4, above.length, part);
    for (const method of methods.split(', ')) routes.push([method as 'GET', above.join('').replaceAll(/:\w+/g, '1')]);
  }
  t.ok(routes.length > 15, `${routes.length} routes`);
  t.ok(routes.some(([, path]) => path === '/dev/customers/1'));
  const open: string[] = [];
  for (const [method, path] of routes) {
    const { statusCode } = await app.inject({
      method,
      url: path.replaceAll(/:\w+/g, '1'),
      remoteAddress: '10.0.0.1',
    });
    if (statusCode !== 403) open.push(`${method} ${path}`);
  }
  t.same(
    open.toSorted(),
    ['/livez', '/metrics', '/openapi.json', '/readyz'].flatMap((path) => [`GET ${path}`, `HEAD ${path}`]).toSorted(),
  );
  for (const path of ['/livez/', '//livez', '/LIVEZ', '/livez/../transactions', '/transactions/livez', '/%6civez/x']) {
    t.same(await call(merchantA, 'GET', path, { from: '10.0.0.1' }), forbidden, path);
  }
  const { app: local } = await servicesFixture(t);
  const fromAfar = await local.inject({ url: '/livez', remoteAddress: '10.0.0.1' });
  t.equal(fromAfar.statusCode, 403, 'without assertions every peer outside loopback gets 403');
});

t.test('every response forbids caching', async (t) => {
  const { app } = await servicesFixture(t);
  for (const url of ['/transactions', '/nothing']) {
    const { headers } = await app.inject(url);
    t.equal(headers['cache-control'], 'no-store');
    t.equal(headers['content-type'], 'application/json; charset=utf-8');
  }
});
