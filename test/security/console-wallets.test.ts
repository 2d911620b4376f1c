import t from 'tap';
import { order, walletsFixture } from '../console/wallets-fixture.js';

t.test('the wallets of the console are no way to the rest of the services', async (t) => {
  const { ask, createPerson, received, services, signIn, signInAs, createMerchant, eventsOf } = await walletsFixture(t);
  const wallet = await services.open('merchant_a');
  const balance = async () =>
    ((await services.operate('GET', `/wallets/${wallet}`)).body.data as { balance: number }).balance;
  const [api, body] = ['/console/api/wallets', order];

  const viewer = await signInAs('rita', 'auditor');
  const { id: merchantId } = await createMerchant();
  const member = await signIn((await createPerson('mo', ['merchant-admin'], merchantId)).token);
  received.length = 0;
  for (const movement of ['fund', 'withdraw']) {
    t.match(await ask('POST', `${api}/${wallet}/${movement}`, { session: viewer, body }), {
      ...{ status: 403, body: { data: { code: 'permission_missing', permission: 'wallets:fund' } } },
    });
    t.equal((await ask('POST', `${api}/${wallet}/${movement}`, { session: member, body })).status, 404);
    t.equal((await ask('POST', `${api}/${wallet}/${movement}`, { body })).status, 401);
  }
  for (const at of ['', `/${wallet}`, `/${wallet}/entries`])
    t.equal((await ask('GET', `${api}${at}`, { session: member })).status, 404, `a member: ${at}`);
  const foreign = { session: viewer, body, headers: { origin: 'https://evil.example' } };
  t.equal((await ask('POST', `${api}/${wallet}/fund`, foreign)).status, 403, 'another site');
  t.same(received, [], 'the services received none of these');
  t.match(await eventsOf('attempt.refused'), { length: 7 }, 'each attempt with a session is an event');

  const session = await signInAs('tess', 'treasurer');
  const ids = [
    ...['..%2f..%2flivez', '..%2faccounts', '%2e%2e', '..', '.', '%2e%2e%2fopenapi.json', `${wallet}%2ffund`],
    ...[
      `${wallet}%3fx=1`,
      `${wallet}%23`,
      `${wallet}%0d%0ax-actor:%20eve`,
      `${wallet}%00`,
      `..%5c${wallet}`,
      '%252e%252e',
    ],
    ...[`${wallet.slice(0, -1)}é`, wallet.toUpperCase(), `${wallet}.`, 'http:%2f%2f127.0.0.1', '@127.0.0.1'],
  ];
  for (const id of ids) {
    for (const end of ['', '/entries'])
      t.equal((await ask('GET', `${api}/${id}${end}`, { session })).status, 404, `${id}${end}`);
    // A client resolves `./fund` to `fund`. The registry takes `fund` for the id of a wallet, and allows only GET.
    const status = id === '.' ? 405 : 404;
    t.equal((await ask('POST', `${api}/${id}/fund`, { session, body })).status, status, `${id}/fund`);
  }
  for (const query of [
    'merchantId=a%26b',
    'merchantId=..%2f',
    'up_to=1',
    'currency=NGN&currency=USD',
    'environment=%0d%0a',
  ])
    t.equal((await ask('GET', `${api}?${query}`, { session })).status, 422, query);
  for (const query of ['reference=', 'reference=a%26b', 'reference=a%0d%0ab', 'reference=a&reference=b'])
    t.equal((await ask('GET', `${api}/${wallet}/entries?${query}`, { session })).status, 422, query);
  t.same(
    received.filter(({ authorization }) => authorization?.startsWith('Bearer ey') === true),
    [],
  );
  const claimed = { ...body, approved: { ...body, walletId: wallet } };
  t.equal((await ask('POST', `${api}/${wallet}/fund`, { session, body: claimed })).status, 422);
  const headers = { 'x-merchant-id': 'm', 'x-gateway-assertion': 'a', 'x-actor': 'eve', 'x-forwarded-for': '10.0.0.7' };
  t.equal((await ask('GET', `${api}/${wallet}`, { session, headers })).status, 200);
  t.same(
    Object.keys(received.at(-1) ?? {}).filter((name) => Object.hasOwn(headers, name)),
    [],
    'no header of the browser reaches the services',
  );
  t.equal(await balance(), 0);
});
