import { randomUUID } from 'node:crypto';
import { agreed, operatorsOf } from './operators-fixture.js';
import { balanceOf, bankPayout, ledgerSum, merchantA, onEachServices } from './services-fixture.js';

const largest = Number.MAX_SAFE_INTEGER;

onEachServices('creating a wallet is idempotent, and the first wallet is the default', async (t, services) => {
  const { operate } = operatorsOf(t, services);
  const body = { merchantId: 'merchant_a', environment: 'live', currency: 'NGN' };
  const created = await operate('POST', '/wallets', body, { 'x-actor': 'ada' });
  t.equal(created.status, 201);
  t.match(created.body.data, { ...body, balance: 0, isDefault: true, createdBy: 'ada', isRepeated: false });
  const again = await operate('POST', '/wallets', body, { 'x-actor': 'bob' });
  t.equal(again.status, 200);
  t.same(again.body.data, { ...(created.body.data as object), isRepeated: true });

  const id = randomUUID();
  const additional = { ...body, isDefault: false, id };
  const second = await operate('POST', '/wallets', additional);
  t.equal(second.status, 201);
  t.match(second.body.data, { id, isDefault: false });
  t.match(await operate('POST', '/wallets', additional), { status: 200, body: { data: { id, isRepeated: true } } });
  t.match(await operate('POST', '/wallets', { ...body, id }), {
    status: 409,
    body: { message: /is not the default wallet in NGN: set isDefault to false$/, data: { code: 'wallet_exists' } },
  });
  t.match(await operate('POST', '/wallets', { ...additional, currency: 'KES' }), {
    status: 409,
    body: { data: { code: 'wallet_exists' } },
  });
  t.match(await operate('POST', '/wallets', { ...body, id: randomUUID() }), {
    status: 409,
    body: { data: { code: 'wallet_exists' } },
  });
  t.match(await operate('POST', '/wallets', { ...body, isDefault: false }), {
    status: 422,
    body: { data: { errors: [{ path: 'id' }] } },
  });
  const inKes = { ...additional, currency: 'KES', id: randomUUID() };
  for (const status of [201, 200])
    t.match(await operate('POST', '/wallets', inKes), { status, body: { data: { isDefault: true } } });
  t.match((await operate('GET', '/wallets?merchantId=merchant_a&currency=NGN')).body, {
    data: [{ id }, { isDefault: true }],
    meta: { total_records: 2 },
  });
  t.same((await operate('GET', '/wallets?environment=test')).body.data, []);
  t.match(await operate('GET', `/wallets/${id.toUpperCase()}`), { status: 200, body: { data: { id } } });
  for (const path of [`/wallets/${randomUUID()}`, '/wallets/none', '/wallets/none/entries'])
    t.match(await operate('GET', path), { status: 404, body: { data: { code: 'wallet_not_found' } } }, path);
});

onEachServices('ten concurrent requests for the first wallet create one wallet', async (t, services) => {
  const { open } = operatorsOf(t, services);
  const ids = await Promise.all(Array.from({ length: 10 }, () => open('merchant_a')));
  t.equal(new Set(ids).size, 1);
});

onEachServices('a movement happens once per reference, also with ten concurrent requests', async (t, services) => {
  const { database } = services;
  const { open, move, check } = operatorsOf(t, services);
  const walletId = await open('merchant_a');
  const order = { reference: 'deposit-1', reason: 'Deposit' };
  const responses = await Promise.all(Array.from({ length: 10 }, () => move('fund', walletId, 700, order)));
  t.same(responses.map(({ status }) => status).toSorted(), [200, 200, 200, 200, 200, 200, 200, 200, 200, 201]);
  const [first] = responses;
  for (const { data } of responses) t.match(data, { id: first?.data.id, balanceAfter: 700, reference: 'deposit-1' });
  await move('withdraw', walletId, 100);
  t.match(
    await move('fund', walletId, 700, order),
    { status: 200, data: { balanceAfter: 700 } },
    'a later repeat gets the first result',
  );

  const other = await open('merchant_b');
  for (const [kind, wallet, amount, more] of [
    ['fund', walletId, 701, order],
    ['withdraw', walletId, 700, order],
    ['fund', walletId, 700, { ...order, reason: 'Another' }],
    ['fund', other, 700, order],
  ] as const)
    t.match(await move(kind, wallet, amount, more), { status: 409, code: 'reference_taken' });
  const reworded = await move('fund', walletId, 700, { ...order, reason: 'deposit' });
  const { message } = reworded.body;
  t.match(
    message,
    /^This money was already moved under the reference deposit-1 at 2026-\S+Z, with the reason "Deposit"/,
  );
  t.notMatch(message, /use a new reference/);
  t.equal(await balanceOf(database, walletId), 600);
  t.equal(await balanceOf(database, other), 0);
  t.same(await check(), agreed);
});

onEachServices(
  'a rejection for insufficient balance is stored by reference, so a delayed duplicate cannot be executed later',
  async (t, services) => {
    const { database } = services;
    const { open, move, check } = operatorsOf(t, services);
    const walletId = await open('merchant_a');
    await move('fund', walletId, 50);
    const order = { reference: 'back-1', reason: 'Back' };
    t.match(await move('withdraw', walletId, 100, order), { status: 422, code: 'insufficient_balance' });
    await move('fund', walletId, 100);
    t.match(await move('withdraw', walletId, 100, order), { status: 422, code: 'insufficient_balance' });
    t.equal(await balanceOf(database, walletId), 150, 'the rejected movement was never executed');
    t.match(await move('withdraw', walletId, 99, order), { status: 409, code: 'reference_taken' });
    t.match(await move('fund', walletId, 100, order), { status: 409, code: 'reference_taken' });
    t.match(await move('withdraw', walletId, 100, { reference: 'back-2' }), {
      status: 201,
      data: { balanceAfter: 50 },
    });
    t.match(await move('fund', walletId, largest, { reference: 'more-1' }), { code: 'balance_too_large' });
    await move('withdraw', walletId, 50);
    t.match(await move('fund', walletId, largest, { reference: 'more-1' }), { code: 'balance_too_large' });
    t.same(await check(), agreed);
  },
);

onEachServices(
  'a rejected reference is used up for all wallets, also beside the previous release',
  async (t, services) => {
    const { database } = services;
    const { open, move } = operatorsOf(t, services);
    const [walletId, other] = [await open('merchant_a'), await open('merchant_b')];
    const sandbox = await open('merchant_a', { environment: 'test' });
    const order = { reference: 'back-1', reason: 'Back' };
    const rejected = await move('withdraw', walletId, 100, order);
    t.match(rejected, { status: 422, code: 'insufficient_balance' });
    for (const [kind, wallet, more] of [
      ['fund', other, order],
      ['withdraw', other, order],
      ['fund', sandbox, { ...order, environment: 'test' }],
    ] as const)
      t.match(await move(kind, wallet, 100, more), { status: 409, code: 'reference_taken' });
    t.same(await move('withdraw', walletId, 100, order), rejected);

    const owners = database.selectFrom('answers').select('merchant_id').orderBy('merchant_id');
    t.same(
      await owners.execute(),
      [{ merchant_id: '' }, { merchant_id: 'merchant_a' }],
      'the previous release finds the rejection under the owner of the wallet',
    );
    await database.deleteFrom('answers').where('merchant_id', '=', '').execute();
    t.same(await move('withdraw', walletId, 100, order), rejected, 'a rejection that the previous release stored');
  },
);

onEachServices(
  'one reference sent concurrently to two wallets moves money in only one of them',
  async (t, services) => {
    const { open, move, check } = operatorsOf(t, services);
    const wallets = await Promise.all(['merchant_a', 'merchant_b'].map((one) => open(one)));
    for (let round = 0; round < 10; round += 1) {
      const responses = await Promise.all(wallets.map((one) => move('fund', one, 5, { reference: `round-${round}` })));
      t.same(responses.map(({ status }) => status).toSorted(), [201, 409]);
    }
    t.same(await check(), agreed);
  },
);

onEachServices('an operator cannot use the reference of a payout', async (t, services) => {
  const { call } = services;
  const { open, move } = operatorsOf(t, services);
  const walletId = await open('merchant_a');
  await move('fund', walletId, 1000);
  const { body } = await call(merchantA, 'POST', '/dev/payouts', { body: bankPayout(walletId) });
  const { reference } = body.data as { reference: string };
  t.match(await move('fund', walletId, 100, { reference }), { status: 409, code: 'reference_taken' });
});

onEachServices('an impossible movement is rejected with its code and moves nothing', async (t, services) => {
  const { database } = services;
  const { open, move } = operatorsOf(t, services);
  const walletId = await open('merchant_a');
  await move('fund', walletId, 500);
  for (const [more, code] of [
    [{ environment: 'test' }, 'wrong_environment'],
    [{ currency: 'KES' }, 'wrong_currency'],
    [{ merchantId: 'merchant_b' }, 'wrong_merchant'],
  ] as const)
    t.match(await move('fund', walletId, 1, more), { status: 422, code, body: { data: { errors: { length: 1 } } } });
  t.match(await move('withdraw', walletId, 501), {
    ...{ status: 422, code: 'insufficient_balance' },
    body: {
      message:
        /^Insufficient wallet balance\. The reference \S+ cannot be used again: use a new reference for the next attempt$/,
    },
  });
  t.match(await move('fund', randomUUID(), 1), { status: 404, code: 'wallet_not_found' });
  for (const amount of [0, -1, 1.5, largest + 1, '100', null])
    t.match(await move('fund', walletId, amount as number), {
      status: 422,
      body: { data: { errors: [{ path: 'amount' }] } },
    });
  for (const [name, value] of [
    ['reference', ''],
    ['reference', 'with blanks in it'],
    ['reference', `svc_live_${'x'.repeat(20)}`],
    ['reference', 'x'.repeat(101)],
    ['reason', ''],
    ['reason', 'two\nlines'],
    ['reason', 'x'.repeat(201)],
    ['environment', 'production'],
    ['currency', 'naira'],
    ['merchantId', 'a b'],
  ] as const)
    t.match(await move('fund', walletId, 1, { [name]: value }), {
      status: 422,
      body: { data: { errors: [{ path: name }] } },
    });
  t.match(await move('fund', walletId, 1, { note: 'x' }), { status: 422 }, 'an unknown field');
  t.equal(await balanceOf(database, walletId), 500);
  t.equal(await ledgerSum(database, walletId), 500);
});

onEachServices('a wallet keeps headroom for the refunds of pending payouts', async (t, services) => {
  const { call, database, pass } = services;
  const { open, move, check } = operatorsOf(t, services);
  const walletId = await open('merchant_a');
  t.match(await move('fund', walletId, largest), { status: 201 });
  t.match(await move('fund', walletId, 1), { status: 422, code: 'balance_too_large' });
  const lost = bankPayout(walletId, { amount: 1000, destinationAccountNumber: '0000000000' });
  t.equal((await call(merchantA, 'POST', '/dev/payouts', { body: lost })).status, 201);
  t.match(
    await move('fund', walletId, 1000),
    { status: 422, code: 'balance_too_large' },
    'without headroom the refund would exceed the maximum',
  );
  await pass(200_000);
  await pass(200_000);
  t.equal(await balanceOf(database, walletId), largest, 'the refund arrived');
  t.same(await check(), agreed);
});

onEachServices('the operators’ API describes all its routes and status codes', async (t, services) => {
  const { app } = operatorsOf(t, services);
  const description = (await app.inject('/openapi.json')).json<{ paths: Record<string, object> }>();
  t.same(Object.keys(description.paths).toSorted(), [
    ...[
      '/accounts',
      '/wallets',
      '/wallets/{id}',
      '/wallets/{id}/entries',
      '/wallets/{id}/fund',
      '/wallets/{id}/withdraw',
    ],
  ]);
  t.match(description.paths['/wallets/{id}/fund'], {
    post: { responses: { 200: {}, 201: {}, 401: {}, 403: {}, 409: {}, 422: {} } },
  });
});
