import { seedDemo } from '../../src/services/demo.js';
import {
  addWallet,
  balanceOf,
  bankPayout,
  ledgerSum,
  merchantA,
  merchantB,
  sandboxOfA,
  onEachServices,
  startOfTest,
} from './services-fixture.js';
import { emptyList } from '../empty-list.js';

const lists = ['/transactions', '/dev/transactions', '/dev/payouts', '/dev/customers', '/dev/wallets'];

onEachServices('an empty list has zero pages', async (t, { call }) => {
  for (const list of lists) {
    const { status, body } = await call(merchantA, 'GET', list);
    t.equal(status, 200);
    t.same(body.data, [], list);
    t.same(body.meta, { total_records: 0, current_page: 1, total_pages: 0, per_page: 20 }, list);
  }
});

onEachServices('the pages of a list contain each record once, newest first', async (t, { call, database }) => {
  const walletId = await addWallet(database, merchantA, { balance: 1000 });
  for (let index = 1; index <= 100; index += 1) {
    const body = bankPayout(walletId, { amount: 1, remarks: `number ${index}` });
    await call(merchantA, 'POST', '/dev/payouts', { body });
    const customer = { email: `number${index}@example.com`, firstName: 'Ada', lastName: 'Obi' };
    await call(merchantA, 'POST', '/dev/customers', { body: customer });
  }
  for (const [list, total] of [
    ['/transactions', 101],
    ['/dev/transactions', 101],
    ['/dev/payouts', 100],
    ['/dev/customers', 100],
  ] as const) {
    const whole = (await call(merchantA, 'GET', `${list}?per_page=100`)).body;
    t.equal((whole.data as unknown[]).length, 100, list);
    t.same(whole.meta, { total_records: total, current_page: 1, total_pages: Math.ceil(total / 100), per_page: 100 });

    const pages = await Promise.all(
      [1, 2, 3, 4, 5, 6].map((page) => call(merchantA, 'GET', `${list}?page=${page}&per_page=20`)),
    );
    const items = pages.flatMap(({ body }) => body.data as { id: unknown; createdAt: string }[]);
    t.equal(items.length, total);
    t.equal(new Set(items.map(({ id }) => id)).size, total);
    t.same(items.slice(0, 100), whole.data);
    const times = items.map(({ createdAt }) => createdAt);
    t.same(times, [...times].sort().reverse(), 'newest first');
    t.match(pages[5]?.body.meta, {
      total_records: total,
      current_page: 6,
      total_pages: Math.ceil(total / 20),
      per_page: 20,
    });
    t.match((await call(merchantA, 'GET', `${list}?page=999999999&per_page=100`)).body, {
      success: true,
      data: emptyList,
      meta: { total_records: total, current_page: 999999999 },
    });
  }
  const [last] = (await call(merchantA, 'GET', '/transactions?page=6')).body.data as { id: unknown; amount: unknown }[];
  t.ok(Number.isInteger(last?.id) && Number.isInteger(last?.amount), 'ids and amounts of transactions are integers');
});

onEachServices(
  'records created in the same millisecond keep their order of creation',
  async (t, { call, database }) => {
    const ids = [];
    for (let index = 0; index < 20; index += 1) ids.unshift(await addWallet(database, merchantA));
    t.same(
      ((await call(merchantA, 'GET', '/dev/wallets')).body.data as { id: string }[]).map(({ id }) => id),
      ids,
    );
  },
);

onEachServices('HEAD returns the headers of GET without a body', async (t, { app }) => {
  const headers = { 'x-merchant-id': 'merchant_a', 'x-merchant-environment': 'live' };
  const response = await app.inject({ method: 'HEAD', url: '/transactions', headers });
  t.equal(response.statusCode, 200);
  t.equal(response.body, '');
});

onEachServices(
  'demo records are consistent, inserted once, and limited to one merchant and environment',
  async (t, { call, database }) => {
    const { walletId } = await seedDemo(database, { ...merchantA, now: startOfTest });
    t.same(await seedDemo(database, { ...merchantA, now: startOfTest + 1 }), { walletId });

    t.equal(await balanceOf(database, walletId), 5_000_000);
    t.equal(await ledgerSum(database, walletId), 5_000_000);
    const { body } = await call(merchantA, 'GET', '/transactions?per_page=100');
    const transactions = (
      body.data as { type: string; amount: number; balanceAfter: number; createdAt: string }[]
    ).reverse();
    t.equal(transactions.length, 25);
    t.equal(transactions.at(-1)?.createdAt, new Date(startOfTest).toISOString());
    let balance = 0;
    for (const { type, amount, balanceAfter } of transactions) {
      balance += type === 'credit' ? amount : -amount;
      t.equal(balanceAfter, balance);
      t.ok(balance >= 0);
    }
    const customers = (await call(merchantA, 'GET', '/dev/customers')).body.data as { email: string }[];
    t.equal(customers.length, 3);
    for (const { email } of customers) t.match(email, /@example\.com$/);
    t.match((await call(merchantA, 'GET', '/dev/wallets')).body.data, [
      { id: walletId, currency: 'NGN', isDefault: true },
    ]);

    for (const stranger of [merchantB, sandboxOfA])
      t.same((await call(stranger, 'GET', '/transactions')).body.data, []);
    const sandbox = await seedDemo(database, { ...sandboxOfA, now: startOfTest });
    t.not(sandbox.walletId, walletId);
    const payout = { amount: 5_000_000, currency: 'NGN', recipient: '+2348012345678' };
    t.equal((await call(sandboxOfA, 'POST', '/payouts', { body: payout })).status, 201, 'the money can be paid out');
  },
);
