import { randomBytes } from 'node:crypto';
import t from 'tap';
import { noRules } from '../../src/registry/approvals/guard.js';
import { applyConfiguredRules } from '../../src/registry/approvals/rules.js';
import { consoleFixture, origin, sessionIn } from './console-fixture.js';
import { startServer } from '../start-server.js';
import { order, walletsFixture } from './wallets-fixture.js';

interface Wallet {
  readonly id: string;
  readonly balance: number;
}

const api = '/console/api';
const someWallet = '00000000-0000-4000-8000-000000000000';

t.test('a treasurer creates, funds and reads a wallet through the console', async (t) => {
  const { ask, createMerchant, received, services, signInAs } = await walletsFixture(t);
  const { id: merchantId } = await createMerchant();
  const session = await signInAs('tess', 'treasurer');
  const me = await ask<{ hasWallets: boolean }>('GET', `${api}/me`, { session });
  t.equal(me.body.data.hasWallets, true);
  const body = { merchantId, environment: 'live', currency: 'NGN' };
  const created = await ask<Wallet>('POST', `${api}/wallets`, { session, body });
  t.match(created, { status: 201, body: { success: true, message: 'Wallet created', data: { balance: 0 } } });
  t.equal((await ask('POST', `${api}/wallets`, { session, body })).status, 200, 'a repeat gets the same wallet');
  const at = `${api}/wallets/${created.body.data.id}`;

  const funded = await ask('POST', `${at}/fund`, { session, body: order, headers: { 'x-reason': 'a%20test' } });
  t.match(funded, { status: 201, body: { data: { balanceAfter: 1050, isRepeated: false, actor: 'tess' } } });
  t.match(await ask('POST', `${at}/fund`, { session, body: order }), {
    status: 200,
    body: { data: { balanceAfter: 1050, isRepeated: true } },
  });
  const withdrawal = { ...order, amount: 50, reference: 'withdrawal-1' };
  t.match(await ask('POST', `${at}/withdraw`, { session, body: withdrawal }), { status: 201 });
  t.match((await ask('GET', at, { session })).body.data, { id: created.body.data.id, balance: 1000 });
  const entries = await ask(`GET`, `${at}/entries?page=2&per_page=1`, { session });
  t.match(entries.body, {
    data: [{ amount: 1050, reference: 'deposit-1', reason: 'Deposit' }],
    meta: { total_records: 2, current_page: 2, total_pages: 2, per_page: 1 },
  });
  const found = await ask('GET', `${at}/entries?reference=deposit-1`, { session });
  t.match(found.body, { data: [{ reference: 'deposit-1' }], meta: { total_records: 1 } });

  await services.open('merchant_b', { currency: 'USD', environment: 'test' });
  const idsOf = async (query: string) =>
    (await ask<Wallet[]>('GET', `${api}/wallets${query}`, { session })).body.data.length;
  t.equal(await idsOf(''), 2);
  t.equal(await idsOf('?merchantId=merchant_b&environment=test&currency=USD'), 1);
  t.equal(await idsOf('?environment=live&currency=USD'), 0);

  const allowed = ['accept', 'authorization', 'connection', 'content-length', 'content-type', 'host', 'user-agent'];
  for (const headers of received.filter(({ 'user-agent': agent }) => agent === 'merchant-gateway'))
    t.same(
      Object.keys(headers).filter((name) => ![...allowed, 'x-reason'].includes(name)),
      [],
      'neither the cookie nor a header of the browser is forwarded',
    );
  t.equal(received.filter(({ 'x-reason': reason }) => reason === 'a%20test').length, 1);
});

t.test('an event about money has the address of the person, not of the registry', async (t) => {
  const fixture = await walletsFixture(t, { behindProxy: ['127.0.0.1'] });
  const { ask, createMerchant, eventsOf, sendEvents, signInAs } = fixture;
  const { id: merchantId } = await createMerchant();
  const session = await signInAs('tess', 'treasurer');
  const headers = { 'x-forwarded-for': '203.0.113.9' };
  const body = { merchantId, environment: 'live', currency: 'NGN' };
  const created = await ask<Wallet>('POST', `${api}/wallets`, { session, body, headers });
  const at = `${api}/wallets/${created.body.data.id}`;
  t.equal((await ask('POST', `${at}/fund`, { session, body: order, headers })).status, 201);
  const withdrawal = { ...order, amount: 50, reference: 'withdrawal-1' };
  t.equal((await ask('POST', `${at}/withdraw`, { session, body: withdrawal, headers })).status, 201);
  const unreadable = { 'x-forwarded-for': 'unknown' };
  const next = { ...order, reference: 'deposit-2' };
  t.equal((await ask('POST', `${at}/fund`, { session, body: next, headers: unreadable })).status, 201);
  await sendEvents();
  for (const action of ['wallet.created', 'wallet.withdrawn'])
    t.match(await eventsOf(action), [{ actor: 'tess', source: '203.0.113.9' }], action);
  t.match(await eventsOf('wallet.funded'), [
    { source: null, after: { reference: 'deposit-2' } },
    { source: '203.0.113.9', after: { reference: 'deposit-1' } },
  ]);
});

t.test('problems of the services are shown as they are', async (t) => {
  const { ask, createMerchant, services, signInAs } = await walletsFixture(t);
  const session = await signInAs('tess', 'treasurer');
  const { id: merchantId } = await createMerchant();
  const at = `${api}/wallets/${await services.open(merchantId)}/fund`;
  for (const [changes, status, code] of [
    [{ currency: 'USD' }, 422, 'wrong_currency'],
    [{ amount: 1.5 }, 422, 'validation_failed'],
    [{ reference: 'svc_live_0123456789' }, 422, 'validation_failed'],
  ] as const) {
    const { status: given, body } = await ask('POST', at, { session, body: { ...order, ...changes } });
    t.match([given, body.data.code], [status, code]);
  }
  t.match(await ask('POST', at, { session, body: { ...order, reference: 'svc_live_0123456789' } }), {
    body: { data: { errors: [{ path: 'reference', message: /API key/ }] } },
  });
  t.match(await ask('GET', `${api}/wallets/${someWallet}`, { session }), {
    status: 404,
    body: { data: { code: 'wallet_not_found' } },
  });
  const body = { merchantId: 'm_unknown', environment: 'live', currency: 'NGN' };
  t.match(await ask('POST', `${api}/wallets`, { session, body }), {
    ...{ status: 404, body: { message: 'Merchant not found' } },
  });
});

t.test('money moves only with a recent proof of identity', async (t) => {
  const { ask, eventsOf, services, signInAs, time } = await walletsFixture(t);
  const session = await signInAs('tess', 'treasurer');
  const wallet = await services.open('merchant_a');
  time.advance(10 * 60_000);
  for (const movement of ['fund', 'withdraw'])
    t.match(await ask('POST', `${api}/wallets/${wallet}/${movement}`, { session, body: order }), {
      status: 403,
      body: { data: { code: 'identity_not_proven' } },
    });
  t.match(await eventsOf('attempt.refused'), [
    { actor: 'tess', after: { needs: 'a recent proof of identity', route: '/console/api/wallets/:id/withdraw' } },
    { actor: 'tess', after: { needs: 'a recent proof of identity', route: '/console/api/wallets/:id/fund' } },
  ]);
  t.match((await ask('GET', `${api}/wallets/${wallet}`, { session })).body.data, { balance: 0 });
});

t.test('a funding above the limit needs the approval of somebody else', async (t) => {
  const { ask, database, services, signInAs, time } = await walletsFixture(t);
  await applyConfiguredRules(
    { database, clock: time, random: randomBytes },
    { ...noRules, fundingAbove: { NGN: 1000 } },
    undefined,
  );
  const [tess, theo] = [await signInAs('tess', 'treasurer'), await signInAs('theo', 'treasurer')];
  const walletId = await services.open('merchant_a');
  const at = `${api}/wallets/${walletId}/fund`;
  const fund = async (session: string, query = '', changes = {}) => {
    const { status, body } = await ask('POST', `${at}${query}`, { session, body: { ...order, ...changes } });
    return [status, body.data.code];
  };
  t.same(await fund(tess), [403, 'approval_required']);
  const { amount, currency, environment, reference } = order;
  const funding = { walletId, environment, currency, amount, reference };
  const requested = await ask<{ id: string }>('POST', `${api}/approvals`, { session: tess, body: funding });
  const query = `?approvalId=${requested.body.data.id}`;
  t.same(await fund(tess, query), [409, 'approval_not_approved']);
  await ask('POST', `${api}/approvals/${requested.body.data.id}/approve`, { session: theo });
  t.same(await fund(tess, query, { amount: amount + 1 }), [403, 'approval_required'], 'only what was approved');
  t.same(await fund(theo, query), [404, 'not_found'], 'only by who requested it');
  t.same(await fund(tess, query), [201, undefined]);
  t.same(await fund(tess, query), [200, undefined], 'once');
  t.same(await fund(tess), [200, undefined], 'a repeat needs no approval');
});

t.test('each role has the permissions for wallets that it has elsewhere', async (t) => {
  const { ask, createMerchant, createPerson, services, signIn, signInAs } = await walletsFixture(t);
  const { id: merchantId } = await createMerchant();
  const wallet = await services.open(merchantId);
  const newWallet = { merchantId, environment: 'live', currency: 'NGN' };
  const statusesOf = async (session: string) => {
    const responses = [
      await ask('GET', `${api}/wallets`, { session }),
      await ask('GET', `${api}/wallets/${wallet}`, { session }),
      await ask('GET', `${api}/wallets/${wallet}/entries`, { session }),
      await ask('POST', `${api}/wallets`, { session, body: newWallet }),
      await ask('POST', `${api}/wallets/${wallet}/fund`, { session, body: order }),
    ];
    return responses.map(({ status }) => status);
  };
  t.same(await statusesOf(await signInAs('tess', 'treasurer')), [200, 200, 200, 200, 201]);
  t.same(await statusesOf(await signInAs('rita', 'auditor')), [200, 200, 200, 403, 403]);
  t.same(await statusesOf(await signInAs('sam', 'support')), [403, 403, 403, 403, 403]);
  const member = await signIn((await createPerson('mo', ['merchant-admin'], merchantId)).token);
  t.same(await statusesOf(member), [404, 404, 404, 404, 404]);
});

t.test('a session that is limited to addresses reads wallets: the registry has checked the address', async (t) => {
  const { app, call, console, createPerson } = await walletsFixture(t);
  const { id } = await createPerson('tess', ['treasurer']);
  const body = { name: 'limited', administratorId: id, sources: ['10.0.0.7'] };
  const { token } = (await call<{ token: string }>('POST', '/tokens', { body })).body.data;
  const asked = { remoteAddress: '10.0.0.7', payload: '{}' };
  const ofJson = { 'content-type': 'application/json' };
  const link = await app.inject({
    ...{ ...asked, method: 'POST', url: '/console-links' },
    headers: { ...ofJson, authorization: `Bearer ${token}` },
  });
  const secret = new URL(link.json<{ data: { url: string } }>().data.url).hash.slice(1);
  const headers = { host: new URL(origin).host, origin };
  const entered = await console.inject({
    ...{ ...asked, method: 'POST', url: `${api}/enter`, payload: JSON.stringify({ token: secret }) },
    headers: { ...headers, ...ofJson },
  });
  const cookie = `__Host-console=${sessionIn(entered)}`;
  const statusFrom = async (remoteAddress: string) =>
    (await console.inject({ url: `${api}/wallets`, remoteAddress, headers: { ...headers, cookie } })).statusCode;
  t.equal(await statusFrom('10.0.0.7'), 200);
  t.equal(await statusFrom('10.0.0.8'), 401);
});

t.test('without a connection the console says what to do, and that money may have moved', async (t) => {
  const silent = await startServer(t, () => undefined);
  for (const [url, problem, timeoutMilliseconds] of [
    ['http://127.0.0.1:1', /ECONNREFUSED/, 60_000],
    [silent, /timeout/, 1_000],
  ] as const) {
    const { ask, signInAs } = await walletsFixture(t, { url, timeoutMilliseconds });
    const session = await signInAs('tess', 'treasurer');
    const read = await ask('GET', `${api}/wallets`, { session });
    t.match(read, { status: 503, body: { data: { code: 'services_unavailable' } } });
    t.match(read.body.message, problem);
    t.match(
      read.body.message,
      /check that they run, and that registry\.console\.services is correct\. Then try again$/,
    );
    const funded = await ask('POST', `${api}/wallets/${someWallet}/fund`, { session, body: order });
    t.match(funded, { status: 503, body: { data: { code: 'services_unavailable' } } });
    t.match(funded.body.message, /may have been moved.*with the same reference, the money moves only once/);
  }
});

t.test('a response that is not of the operators’ API is never passed through', async (t) => {
  const envelope = (data: unknown, success = true) => JSON.stringify({ success, message: 'planted', data });
  const failure = (code: string) => envelope({ code, errors: [] }, false);
  const responses: readonly (readonly [number, string, number, string, Record<string, string>?])[] = [
    [200, '<h1>planted</h1>', 502, 'services_unexpected'],
    [200, '', 502, 'services_unexpected'],
    [200, envelope('planted'), 502, 'services_unexpected'],
    [200, envelope([], false), 502, 'services_unexpected'],
    [200, `{ "success": true, "success": true, "message": "planted", "data": {} }`, 502, 'services_unexpected'],
    [200, JSON.stringify({ data: [] }), 502, 'services_unexpected'],
    [200, envelope([{ text: 'x'.repeat(2_000_000) }]), 502, 'services_unexpected'],
    [302, envelope({}), 502, 'services_unexpected', { location: '/elsewhere' }],
    [404, failure('route_not_found'), 502, 'services_unexpected'],
    [403, failure('forwarded'), 502, 'services_unexpected'],
    [409, '{"message":"planted"}', 502, 'services_unexpected'],
    [401, JSON.stringify({ success: false, message: 'planted', data: null }), 502, 'services_token_refused'],
    [503, failure('service_unavailable'), 503, 'services_unavailable'],
  ];
  let next: (typeof responses)[number] = responses[0] ?? [200, '', 0, ''];
  const url = await startServer(t, (_request, response) => {
    const [status, body, , , headers = {}] = next;
    response.writeHead(status, { 'set-cookie': 'planted=1', 'x-planted': '1', ...headers }).end(body);
  });
  const { ask, signInAs } = await walletsFixture(t, { url });
  const session = await signInAs('tess', 'treasurer');
  for (next of responses) {
    const [status, body, expected, code] = next;
    const shown = await ask('GET', `${api}/wallets`, { session });
    t.match([shown.status, shown.body.data.code], [expected, code], `${status} ${body.slice(0, 40)}`);
    t.notMatch(`${shown.text}${JSON.stringify(shown.headers)}`, 'planted');
  }
  next = [200, envelope([]), 200, ''];
  t.notMatch(JSON.stringify((await ask('GET', `${api}/wallets`, { session })).headers), 'planted');
  next = [200, '<h1>', 502, ''];
  const { body } = await ask('POST', `${api}/wallets/${someWallet}/fund`, { session, body: order });
  t.match(body.message, /may have been moved/);
});

t.test('only the console has the routes, and only with both options', async (t) => {
  const { call } = await walletsFixture(t);
  t.match(await call('GET', '/wallets'), { status: 404, body: { data: { code: 'route_not_found' } } });
  const { ask, createPerson, signIn } = await consoleFixture(t, 'sqlite::memory:');
  const session = await signIn((await createPerson('tess', ['treasurer'])).token);
  t.equal((await ask('GET', `${api}/wallets`, { session })).status, 404);
  t.match((await ask('GET', `${api}/me`, { session })).body.data, { hasWallets: false });
});
