import t from 'tap';
import { merchantA, servicesFixture } from './services-fixture.js';

const forbidden = { status: 403, body: { success: false, message: 'Forbidden', data: null } };

t.test('only loopback peers are served', async (t) => {
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
  t.same(await call(merchantA, 'GET', '/transactions', { from: '10.0.0.1', headers }), forbidden, 'whatever it says');
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

t.test('nobody without an identity learns which paths there are, or has a body read', async (t) => {
  const { call } = await servicesFixture(t);
  t.same(await call(null, 'GET', '/nothing'), forbidden);
  t.same(await call(null, 'PUT', '/transactions'), forbidden);
  t.same(await call(null, 'POST', '/dev/payouts', { payload: '{' }), forbidden);
  t.same(await call(null, 'POST', '/dev/payouts'), forbidden);
  t.same(await call(merchantA, 'POST', '/dev/payouts', { payload: '{', from: '10.0.0.1' }), forbidden);
});

t.test('no answer may be kept by a cache', async (t) => {
  const { app } = await servicesFixture(t);
  for (const url of ['/transactions', '/nothing']) {
    const { headers } = await app.inject(url);
    t.equal(headers['cache-control'], 'no-store');
    t.equal(headers['content-type'], 'application/json; charset=utf-8');
  }
});
