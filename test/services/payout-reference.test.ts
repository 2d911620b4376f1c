import t from 'tap';
import { listPayouts } from '../../src/services/payouts/repository.js';
import { createPostgresDatabase, postgresAlone } from '../database/each-database.js';
import { queryPlans } from '../database/query-plans.js';
import {
  addWallet,
  balanceOf,
  bankPayout,
  ledgerSum,
  merchantA,
  merchantB,
  onEachServices,
  sandboxOfA,
  servicesFixture,
  type ApiResponse,
} from './services-fixture.js';
import { emptyList } from '../empty-list.js';

const invoice = 'INV/2026-01#42';
const recipientOrder = { amount: 100, currency: 'NGN', recipient: '+2348012345678' };

const dataOf = ({ body }: ApiResponse) => body.data as Record<string, string>;
const search = (reference: string) => `/dev/payouts?reference=${encodeURIComponent(reference)}`;
const taken = (payoutId: string | undefined) => ({
  status: 409,
  body: {
    success: false,
    message: 'A payout with this reference already exists',
    data: { code: 'reference_taken', payoutId, errors: [] },
  },
});

onEachServices("a payout is found by the merchant's own reference", async (t, { call, database }) => {
  const walletId = await addWallet(database, merchantA, { balance: 1000, isDefault: true });
  t.match(await call(merchantA, 'GET', search(invoice)), {
    status: 200,
    body: { data: emptyList, meta: { total_records: 0 } },
  });
  const paid = await call(merchantA, 'POST', '/dev/payouts', { body: bankPayout(walletId, { reference: invoice }) });
  t.equal(paid.status, 201);
  t.match(paid.body.data, { merchantReference: invoice, reference: /^[0-9A-Z]{26}$/ });
  const other = await call(merchantA, 'POST', '/payouts', { body: { ...recipientOrder, reference: 'inv-43' } });
  t.match(other, { status: 201, body: { data: { merchantReference: 'inv-43' } } }, 'a payout to a recipient');
  const without = await call(merchantA, 'POST', '/dev/payouts', { body: bankPayout(walletId) });
  t.match(without, { status: 201, body: { data: { merchantReference: null } } });

  const own = await call(merchantA, 'GET', `/dev/payouts/${dataOf(paid).id ?? ''}`);
  t.match(own.body.data, { merchantReference: invoice });
  for (const [reference, found] of [
    [invoice, [paid]],
    ['inv-43', [other]],
    [invoice.toLowerCase(), []],
    ['INV/2026-01', []],
    ['%', []],
    [dataOf(without).reference ?? '', [without]],
    [dataOf(paid).reference ?? '', [paid]],
  ] as const) {
    const { status, body } = await call(merchantA, 'GET', search(reference));
    t.equal(status, 200, reference);
    t.same(
      (body.data as { id: string }[]).map(({ id }) => id),
      found.map((one) => dataOf(one).id),
      reference,
    );
  }
  t.match(
    (await call(merchantA, 'GET', `${search(invoice)}&status=failed`)).body.data,
    emptyList,
    'combined with another filter',
  );
  t.match((await call(merchantA, 'GET', '/transactions?type=debit')).body.data, [
    { reference: dataOf(without).reference },
    { reference: dataOf(other).reference },
    { reference: dataOf(paid).reference },
  ]);
  for (const stranger of [merchantB, sandboxOfA]) {
    t.match((await call(stranger, 'GET', search(invoice))).body, { data: emptyList, meta: { total_records: 0 } });
  }
});

onEachServices(
  'a second payout with the same reference gets 409 with the id of the first, whatever its body',
  async (t, { call, database, pass }) => {
    const walletId = await addWallet(database, merchantA, { balance: 1000, isDefault: true });
    const first = await call(merchantA, 'POST', '/dev/payouts', { body: bankPayout(walletId, { reference: invoice }) });
    const unknownId = '00000000-0000-4000-8000-000000000000';
    const send = async (title: string) => {
      for (const [path, body] of [
        ['/dev/payouts', bankPayout(walletId)],
        ['/dev/payouts', bankPayout(walletId, { amount: 999_999 })],
        ['/dev/payouts', bankPayout(unknownId)],
        ['/payouts', recipientOrder],
        ['/payouts', { ...recipientOrder, currency: 'KES' }],
      ] as const) {
        const response = await call(merchantA, 'POST', path, { body: { ...body, reference: invoice } });
        t.same(response, taken(dataOf(first).id), `${title}: ${path} ${JSON.stringify(body)}`);
      }
    };
    await send('while the first one is pending');
    await pass(365 * 24 * 60 * 60 * 1000);
    await pass(365 * 24 * 60 * 60 * 1000);
    await send('years later');
    const generated = dataOf(first).reference;
    const copied = await call(merchantA, 'POST', '/payouts', { body: { ...recipientOrder, reference: generated } });
    t.same(copied, taken(dataOf(first).id), 'a generated payout reference cannot be used either');
    t.equal(await balanceOf(database, walletId), 900);
    t.equal(await ledgerSum(database, walletId), 900);
    for (const tenant of [merchantB, sandboxOfA]) {
      const own = await addWallet(database, tenant, { balance: 1000 });
      const response = await call(tenant, 'POST', '/dev/payouts', { body: bankPayout(own, { reference: invoice }) });
      t.equal(response.status, 201, 'a reference is unique per merchant and environment');
    }
  },
);

onEachServices('the reference of a rejected payout can be used again', async (t, { call, database }) => {
  const walletId = await addWallet(database, merchantA, { balance: 100 });
  const order = (changes: object) => ({ body: bankPayout(walletId, { reference: invoice, ...changes }) });
  t.equal((await call(merchantA, 'POST', '/dev/payouts', order({ amount: 101 }))).status, 422);
  t.equal((await call(merchantA, 'POST', '/dev/payouts', order({ amount: 0 }))).status, 422);
  t.equal((await call(merchantA, 'POST', '/dev/payouts', order({ amount: 100 }))).status, 201);
});

onEachServices('the Idempotency-Key is checked before the reference', async (t, { call, database }) => {
  const walletId = await addWallet(database, merchantA, { balance: 1000 });
  const order = (key: string, changes = {}) => ({
    headers: { 'idempotency-key': key },
    body: bankPayout(walletId, { reference: invoice, ...changes }),
  });
  const first = await call(merchantA, 'POST', '/dev/payouts', order('k1'));
  t.equal(first.status, 201);
  t.same(await call(merchantA, 'POST', '/dev/payouts', order('k1')), first, 'a repeat gets the first response');
  t.match(await call(merchantA, 'POST', '/dev/payouts', order('k1', { amount: 7 })), {
    status: 422,
    body: { data: { code: 'idempotency_key_reused' } },
  });
  const second = await call(merchantA, 'POST', '/dev/payouts', order('k2'));
  t.same(second, taken(dataOf(first).id));
  t.same(await call(merchantA, 'POST', '/dev/payouts', order('k2')), second, 'the 409 is stored and repeated too');
  t.equal(await balanceOf(database, walletId), 900);
});

onEachServices('format and length of a reference are checked in bodies and queries', async (t, { call, database }) => {
  const walletId = await addWallet(database, merchantA, { balance: 1000 });
  const form = '1 to 64 visible ASCII characters without spaces, and without anything that looks like an API key';
  for (const reference of ['', ' ', 'a b', 'x'.repeat(65), 'é', 'a\n', 7, [], {}]) {
    const message = `reference must be ${form}, or null`;
    const body = bankPayout(walletId, { reference });
    t.match(
      await call(merchantA, 'POST', '/dev/payouts', { body }),
      { status: 422, body: { message, data: { code: 'validation_failed', errors: [{ path: 'reference', message }] } } },
      JSON.stringify(reference),
    );
    if (typeof reference !== 'string') continue;
    const asked = await call(merchantA, 'GET', search(reference));
    t.match(asked, { status: 422, body: { message: `reference must be ${form}` } }, JSON.stringify(reference));
  }
  for (const reference of ['x', '~'.repeat(64), '!"#$%&\'()*+,-./:;<=>?@[\\]^_`{|}']) {
    const body = bankPayout(walletId, { reference });
    const { id } = dataOf(await call(merchantA, 'POST', '/dev/payouts', { body }));
    t.match((await call(merchantA, 'GET', search(reference))).body.data, [{ id, merchantReference: reference }]);
  }
});

onEachServices(
  'of concurrent requests with one reference one payout is made, and the others get its id',
  async (t, services) => {
    const { call, database } = services;
    const wallets = [
      await addWallet(database, merchantA, { balance: 100, isDefault: true }),
      await addWallet(database, merchantA, { balance: 100 }),
    ];
    for (let round = 1; round <= 5; round += 1) {
      const reference = `race-${round}`;
      const responses = await Promise.all(
        Array.from({ length: 12 }, (_, index) =>
          call(merchantA, 'POST', '/dev/payouts', {
            body: bankPayout(wallets[index % 2] ?? '', { amount: 20, reference }),
            headers: index % 3 === 0 ? { 'idempotency-key': `${reference}-${index}` } : {},
          }),
        ),
      );
      const paid = responses.filter(({ status }) => status === 201);
      t.equal(paid.length, 1, reference);
      const [winner] = paid;
      if (winner === undefined) continue;
      for (const response of responses.filter((one) => one !== winner)) t.same(response, taken(dataOf(winner).id));
    }
    const left = await Promise.all(wallets.map((wallet) => balanceOf(database, wallet)));
    t.equal(
      left.reduce((sum, one) => sum + one),
      100,
      'each reference was paid once',
    );
    for (const [index, wallet] of wallets.entries()) t.equal(await ledgerSum(database, wallet), left[index]);
    const rows = await database.selectFrom('payouts').select('merchant_reference').execute();
    t.equal(rows.length, 5);
  },
);

onEachServices(
  'in a race for the last money the losers get 409 for the reference, not 422 for the balance',
  async (t, { call, database }) => {
    const walletId = await addWallet(database, merchantA, { balance: 100 });
    const order = { body: bankPayout(walletId, { amount: 100, reference: invoice }) };
    const responses = await Promise.all(
      Array.from({ length: 8 }, () => call(merchantA, 'POST', '/dev/payouts', order)),
    );
    t.same(responses.map(({ status }) => status).toSorted(), [201, ...Array.from({ length: 7 }, () => 409)]);
  },
);

t.test('two processes make one payout per reference', postgresAlone, async (t) => {
  const url = await createPostgresDatabase(t);
  const processes = [await servicesFixture(t, { url }), await servicesFixture(t, { url })];
  const [one] = processes;
  if (one === undefined) return;
  const walletId = await addWallet(one.database, merchantA, { balance: 1000 });
  for (let round = 1; round <= 5; round += 1) {
    const order = { body: bankPayout(walletId, { reference: `race-${round}` }) };
    const responses = await Promise.all(
      processes.flatMap(({ call }) => Array.from({ length: 4 }, () => call(merchantA, 'POST', '/dev/payouts', order))),
    );
    t.same(responses.map(({ status }) => status).toSorted(), [201, ...Array.from({ length: 7 }, () => 409)]);
  }
  t.equal(await balanceOf(one.database, walletId), 500);
});

onEachServices('a payout written by the previous release has no reference', async (t, { call, database }) => {
  const walletId = await addWallet(database, merchantA, { balance: 1000 });
  const former = (id: string) => ({
    ...{ id, wallet_id: walletId, status: 'successful', amount: 1, currency: 'NGN', reference: `former-${id}` },
    ...{ merchant_id: 'merchant_a', environment: 'live', created_at: 1, updated_at: 1, recipient: '+2348012345678' },
  });
  // The previous release inserts without the column `merchant_reference`, which it does not know.
  await database
    .insertInto('payouts')
    .values(former('1b8f6f0e-4c9b-4a35-9b52-3a4d5f6e7a80') as never)
    .execute();
  await database
    .insertInto('payouts')
    .values(former('2b8f6f0e-4c9b-4a35-9b52-3a4d5f6e7a80') as never)
    .execute();
  t.match((await call(merchantA, 'GET', '/dev/payouts')).body, {
    data: [{ merchantReference: null }, { merchantReference: null }],
    meta: { total_records: 2 },
  });
});

t.test('a reference is found by an index, however many payouts there are', async (t) => {
  const file = `${t.testdir()}/services.db`;
  const { database } = await servicesFixture(t, { url: `sqlite:${file}` });
  const plans = await queryPlans({ database, file }, (watched) =>
    listPayouts(watched, merchantA, { reference: invoice }, { page: 1, perPage: 20 }),
  );
  t.equal(plans.length, 2, 'two queries: the count and the page');
  for (const plan of plans) {
    t.match(plan, /USING (?:COVERING )?INDEX payouts_merchant_reference/);
    t.notMatch(plan, 'payouts_list');
  }
});
