import t from 'tap';
import { advancePayouts } from '../../src/services/payouts/advance-payouts.js';
import { onEachDatabase } from '../database/each-database.js';
import { queryPlans } from '../database/query-plans.js';
import {
  addWallet,
  balanceOf,
  bankPayout,
  ledgerSum,
  merchantA,
  merchantB,
  sandboxOfA,
  onEachServices,
  servicesFixture,
} from './services-fixture.js';
import { emptyList } from '../empty-list.js';

const uuidForm = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

onEachServices(
  'a payout to a bank account debits the wallet, is recorded, and echoes the request',
  async (t, { call, database }) => {
    const walletId = await addWallet(database, merchantA, { balance: 1000 });
    const sent = bankPayout(walletId, { amount: 400, destinationAccountName: 'Zoë Ọlá 🏦' });

    const { status, body } = await call(merchantA, 'POST', '/dev/payouts', { body: sent });
    t.equal(status, 201);
    t.match(body, {
      success: true,
      message: 'Payout created',
      data: { ...sent, id: uuidForm, status: 'pending', currency: 'NGN', recipient: null, reference: /^[0-9A-Z]{26}$/ },
    });
    const payout = body.data as { id: string; reference: string };
    t.match(body.data, { createdAt: '2026-01-15T12:00:01.000Z' });

    t.equal(await balanceOf(database, walletId), 600);
    t.same((await call(merchantA, 'GET', `/dev/payouts/${payout.id}`)).body.data, body.data);
    t.same((await call(merchantA, 'GET', `/dev/payouts/${payout.id.toUpperCase()}`)).body.data, body.data);
    t.same((await call(merchantA, 'GET', '/dev/payouts')).body.data, [body.data]);
    t.match((await call(merchantA, 'GET', '/transactions')).body.data, [
      {
        amount: 400,
        type: 'debit',
        status: 'pending',
        walletId,
        payoutId: payout.id,
        balanceAfter: 600,
        currency: 'NGN',
        reference: payout.reference,
      },
      { amount: 1000, type: 'credit', payoutId: null, balanceAfter: 1000 },
    ]);
  },
);

onEachServices(
  'a payout without remarks has null remarks; a wallet id is accepted in upper case',
  async (t, { call, database }) => {
    const walletId = await addWallet(database, merchantA, { balance: 1000 });
    const sent = bankPayout(walletId.toUpperCase(), { remarks: undefined });
    const { status, body } = await call(merchantA, 'POST', '/dev/payouts', { body: sent });
    t.equal(status, 201);
    t.match(body.data, { walletId, remarks: null });
    const nulls = bankPayout(walletId, { remarks: null, reference: null });
    t.match(await call(merchantA, 'POST', '/dev/payouts', { body: nulls }), {
      status: 201,
      body: { data: { walletId, remarks: null, merchantReference: null } },
    });
    t.equal(
      (await call(merchantA, 'POST', '/dev/payouts', { body: nulls })).status,
      201,
      'null is not a reference, so it can be repeated',
    );
  },
);

onEachServices('a payout to a recipient debits the default wallet of its currency', async (t, { call, database }) => {
  await addWallet(database, merchantA, { balance: 1000 });
  const naira = await addWallet(database, merchantA, { balance: 500, isDefault: true });
  const cedis = await addWallet(database, merchantA, { balance: 300, isDefault: true, currency: 'GHS' });

  const order = { amount: 200, currency: 'GHS', recipient: '+2348012345678' };
  const { status, body } = await call(merchantA, 'POST', '/payouts', { body: order });
  t.equal(status, 201);
  t.match(body.data, { ...order, walletId: cedis, status: 'pending', destinationAccountNumber: null });
  t.equal(await balanceOf(database, cedis), 100);
  t.equal(await balanceOf(database, naira), 500);

  t.match(await call(merchantA, 'POST', '/payouts', { body: { ...order, currency: 'KES' } }), {
    status: 422,
    body: { message: noWalletIn('KES'), data: { code: 'no_default_wallet', errors: [{ path: 'currency' }] } },
  });
  t.match(
    await call(merchantB, 'POST', '/payouts', { body: order }),
    { status: 422, body: { message: noWalletIn('GHS') } },
    'the wallet of another merchant is not debited',
  );
  const own = await addWallet(database, merchantB, { balance: 300, isDefault: true, currency: 'GHS' });
  t.match((await call(merchantB, 'POST', '/payouts', { body: order })).body.data, { walletId: own });
  t.match(
    (await call(merchantA, 'POST', '/payouts', { body: { ...order, currency: 'NGN' } })).body.data,
    { walletId: naira },
    'a wallet with more money that is not the default is not debited',
  );
});

onEachServices('the whole balance can be paid out, but no more', async (t, { call, database }) => {
  const walletId = await addWallet(database, merchantA, { balance: 1000 });
  const over = await call(merchantA, 'POST', '/dev/payouts', { body: bankPayout(walletId, { amount: 1001 }) });
  t.same(over, {
    status: 422,
    body: {
      success: false,
      message: 'Insufficient wallet balance',
      data: { code: 'insufficient_balance', errors: [{ path: 'amount', message: 'Insufficient wallet balance' }] },
    },
  });
  const largest = bankPayout(walletId, { amount: Number.MAX_SAFE_INTEGER });
  t.equal((await call(merchantA, 'POST', '/dev/payouts', { body: largest })).status, 422);
  t.equal(await balanceOf(database, walletId), 1000);
  t.equal(
    (await call(merchantA, 'POST', '/dev/payouts', { body: bankPayout(walletId, { amount: 1000 }) })).status,
    201,
  );
  t.equal(await balanceOf(database, walletId), 0);
});

onEachServices(
  'of 200 concurrent payouts with money for 100 exactly 100 are made, and the ledger adds up',
  async (t, { call, database }) => {
    const walletId = await addWallet(database, merchantA, { balance: 100 * 70 });
    const responses = await Promise.all(
      Array.from({ length: 200 }, () =>
        call(merchantA, 'POST', '/dev/payouts', { body: bankPayout(walletId, { amount: 70 }) }),
      ),
    );
    const statuses = responses.map(({ status }) => status);
    t.equal(statuses.filter((status) => status === 201).length, 100);
    t.equal(statuses.filter((status) => status === 422).length, 100);
    t.equal(await balanceOf(database, walletId), 0);
    t.equal(await ledgerSum(database, walletId), 0);
    const { meta } = (await call(merchantA, 'GET', '/dev/payouts')).body;
    t.equal(meta?.total_records, 100);
    const debits = await database
      .selectFrom('transactions')
      .selectAll()
      .where('type', '=', 'debit')
      .orderBy('id')
      .execute();
    t.same(
      debits.map(({ balance_after }) => balance_after),
      Array.from({ length: 100 }, (_, index) => 70 * (99 - index)),
      'each payout started from the balance that the previous one left',
    );
  },
);

onEachDatabase(
  'an error after the debit leaves the balance unchanged, and the response hides its cause',
  async (t, url) => {
    const { call, database, logged } = await servicesFixture(t, { url });
    const walletId = await addWallet(database, merchantA, { balance: 1000 });
    await database.schema.alterTable('transactions').renameTo('elsewhere').execute();
    const response = await call(merchantA, 'POST', '/dev/payouts', {
      body: bankPayout(walletId),
      headers: { 'x-request-id': 'request-1' },
    });
    t.same(response, {
      status: 500,
      body: { success: false, message: 'Internal error', data: { code: 'internal_error', errors: [] } },
    });
    t.equal(await balanceOf(database, walletId), 1000);
    t.equal((await call(merchantA, 'GET', '/dev/payouts')).body.meta?.total_records, 0);
    t.match(logged, [
      {
        details: { err: /no such table|does not exist/, method: 'POST', route: '/dev/payouts', requestId: 'request-1' },
        message: 'a request failed',
      },
    ]);
  },
);

onEachServices(
  "another merchant or the other environment can neither see nor spend a merchant's money",
  async (t, { call, database }) => {
    const walletId = await addWallet(database, merchantA, { balance: 1000, isDefault: true });
    const payout = await call(merchantA, 'POST', '/dev/payouts', { body: bankPayout(walletId) });
    const { id } = payout.body.data as { id: string };

    for (const stranger of [merchantB, sandboxOfA]) {
      for (const list of ['/transactions', '/dev/transactions', '/dev/payouts', '/dev/wallets']) {
        t.match(
          await call(stranger, 'GET', list),
          { status: 200, body: { data: emptyList, meta: { total_records: 0 } } },
          list,
        );
      }
      t.same(await call(stranger, 'GET', `/dev/payouts/${id}`), notFound('Payout not found'));
      t.same(await call(stranger, 'GET', `/dev/wallets/${walletId}`), notFound('Wallet not found'));
      const stolen = await call(stranger, 'POST', '/dev/payouts', { body: bankPayout(walletId) });
      t.same(stolen, notFound('Wallet not found'));
    }
    t.equal(await balanceOf(database, walletId), 900);
  },
);

onEachServices('an unknown or malformed id gets 404', async (t, { call }) => {
  for (const id of [
    '00000000-0000-4000-8000-000000000000',
    '1',
    'x%00',
    '%ED%A0%80',
    "'%20or%201=1--",
    'a'.repeat(99),
  ]) {
    t.match(await call(merchantA, 'GET', `/dev/payouts/${id}`), { status: /^40[04]$/, body: { success: false } }, id);
    t.match(await call(merchantA, 'GET', `/dev/wallets/${id}`), { status: /^40[04]$/, body: { success: false } }, id);
  }
  t.same(await call(merchantA, 'GET', '/dev/payouts/x%00'), notFound('Payout not found'));
  t.same(await call(merchantA, 'GET', '/dev/wallets/1'), notFound('Wallet not found'));
});

onEachServices('wallets are returned with their balance', async (t, { call, database }) => {
  const id = await addWallet(database, merchantA, { balance: Number.MAX_SAFE_INTEGER, isDefault: true });
  const wallet = {
    id,
    currency: 'NGN',
    balance: Number.MAX_SAFE_INTEGER,
    isDefault: true,
    createdAt: '2026-01-15T12:00:00.000Z',
  };
  t.same((await call(merchantA, 'GET', `/dev/wallets/${id}`)).body, {
    success: true,
    message: 'Wallet retrieved',
    data: wallet,
  });
  t.same((await call(merchantA, 'GET', '/dev/wallets')).body.data, [wallet]);
});

onEachServices(
  'database constraints reject a negative balance and a second default wallet',
  async (t, { database }) => {
    await addWallet(database, merchantA, { balance: 10, isDefault: true });
    await t.rejects(database.updateTable('wallets').set({ balance: -1 }).execute(), /wallets_balance/);
    await t.rejects(addWallet(database, merchantA, { isDefault: true }), /unique/i);
    await t.resolves(addWallet(database, sandboxOfA, { isDefault: true }));
  },
);

t.test('due payouts are found by an index on their state, however many there are in another state', async (t) => {
  const file = `${t.testdir()}/services.db`;
  const { bank, clock, database } = await servicesFixture(t, { url: `sqlite:${file}` });
  const plans = await queryPlans({ database, file }, (watched) => advancePayouts({ database: watched, clock, bank }));
  t.equal(plans.length, 2, 'the queries for processing and pending payouts');
  for (const plan of plans) t.match(plan, 'SEARCH payouts USING INDEX payouts_due (status=? AND due_at<?)');
});

function noWalletIn(currency: string): string {
  return (
    `There is no default wallet in ${currency} for the live environment: ` +
    `ask your provider to create one (currency ${currency}, environment live)`
  );
}

function notFound(message: string) {
  return { status: 404, body: { success: false, message, data: { code: 'not_found', errors: [] } } };
}
