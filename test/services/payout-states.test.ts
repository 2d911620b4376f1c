import fc from 'fast-check';
import { sql, type ExpressionBuilder } from '../../src/database/kysely.js';
import t from 'tap';
import { advancePayouts, refundFailed } from '../../src/services/payouts/advance-payouts.js';
import type { Payout } from '../../src/services/payouts/schema.js';
import { DatabaseError } from '../../src/database/database-error.js';
import { PeriodicTask } from '../../src/services/periodic-task.js';
import type { ServicesDatabase } from '../../src/services/services-database.js';
import type { ServicesTables } from '../../src/services/tables.js';
import { createPostgresDatabase, postgresAlone } from '../database/each-database.js';
import { ManualTime, until } from '../registry/manual-time.js';
import {
  addWallet,
  balanceOf,
  bankPayout,
  merchantA,
  onEachServices,
  servicesFixture,
  type ServicesUnderTest,
} from './services-fixture.js';

const delay = 60_000;
const failing = '0000000000';

async function pay(
  { call }: ServicesUnderTest,
  walletId: string,
  changes: Record<string, unknown> = {},
): Promise<Payout> {
  const { status, body } = await call(merchantA, 'POST', '/dev/payouts', { body: bankPayout(walletId, changes) });
  if (status !== 201) throw new Error(body.message);
  return body.data as Payout;
}

async function read({ call }: ServicesUnderTest, { id }: Payout): Promise<Payout> {
  return (await call(merchantA, 'GET', `/dev/payouts/${id}`)).body.data as Payout;
}

onEachServices('a payout is pending, then processing, then successful', async (t, services) => {
  const { call, database, pass } = services;
  const walletId = await addWallet(database, merchantA, { balance: 1000 });
  const payout = await pay(services, walletId);
  t.match(payout, { status: 'pending', failureReason: null });
  t.equal(payout.createdAt, payout.updatedAt);
  await pass(0);
  t.equal((await read(services, payout)).status, 'pending', 'until the bank accepts it');
  await pass(delay);
  const processing = await read(services, payout);
  t.equal(processing.status, 'processing');
  t.ok(processing.updatedAt > payout.updatedAt);
  await pass(delay);
  const ended = await read(services, payout);
  t.match(ended, { ...payout, status: 'successful', updatedAt: String });
  t.ok(ended.updatedAt > processing.updatedAt);
  t.match((await call(merchantA, 'GET', '/transactions')).body.data, [{ type: 'debit', status: 'successful' }, {}]);
  t.equal(await balanceOf(database, walletId), 900);
  await pass(10 * delay);
  t.same(await read(services, payout), ended, 'a final state never changes');
});

onEachServices('a failed payout is refunded once', async (t, services) => {
  const { bank, call, clock, database, logged, pass } = services;
  const walletId = await addWallet(database, merchantA, { balance: 1000, isDefault: true });
  const toAccount = await pay(services, walletId, { destinationAccountNumber: failing });
  const order = { amount: 50, currency: 'NGN', recipient: '+2340000000000' };
  const toRecipient = (await call(merchantA, 'POST', '/payouts', { body: order })).body.data as Payout;
  t.equal(await balanceOf(database, walletId), 850);
  await pass(delay);
  const rows = await database.selectFrom('payouts').selectAll().execute();
  await Promise.all([pass(delay), ...[1, 2, 3].map(() => advancePayouts({ database, bank, clock }))]);
  for (const row of rows) await refundFailed(database, row, 'once more', clock.now());
  for (const payout of [toAccount, toRecipient]) {
    const failed = { status: 'failed', failureReason: 'The bank does not know the destination account' };
    t.match(await read(services, payout), failed);
  }
  t.equal(await balanceOf(database, walletId), 1000);
  const { data } = (await call(merchantA, 'GET', '/transactions')).body;
  const transactions = data as { type: string; status: string; payoutId: string; amount: number }[];
  t.equal(transactions.length, 5);
  for (const { id: payoutId, amount } of [toAccount, toRecipient]) {
    t.match(
      transactions.filter((one) => one.payoutId === payoutId),
      [
        { type: 'credit', status: 'successful', amount },
        { type: 'debit', status: 'reversed', amount },
      ],
    );
  }
  t.same(await problemsOf(database), []);
  t.same(logged, []);
});

onEachServices('a payout whose refund fails does not block the others, and is retried', async (t, services) => {
  const { database, logged, pass } = services;
  const walletId = await addWallet(database, merchantA, { balance: 1000 });
  const full = await pay(services, walletId, { destinationAccountNumber: failing });
  const other = await pay(services, walletId);
  await pass(delay);
  await database.updateTable('wallets').set({ balance: Number.MAX_SAFE_INTEGER }).execute();
  await pass(delay);
  t.equal((await read(services, full)).status, 'processing', 'the wallet cannot hold the refund');
  t.equal((await read(services, other)).status, 'successful');
  t.match(logged, [{ details: { payout: full.id }, message: /a failed payout could not be refunded; retrying/ }]);
  await database.updateTable('wallets').set({ balance: 800 }).execute();
  await pass(0);
  t.equal((await read(services, full)).status, 'processing', 'the claim has not expired');
  await pass(30_000);
  t.equal((await read(services, full)).status, 'failed');
  t.equal(await balanceOf(database, walletId), 900);
});

t.test(
  'PostgreSQL: refunds to a locked wallet do not delay the payouts of other merchants',
  postgresAlone,
  async (t) => {
    const services = await servicesFixture(t, { url: await createPostgresDatabase(t) });
    const { database, logged, pass } = services;
    const [locked, free] = [
      await addWallet(database, merchantA, { balance: 1000 }),
      await addWallet(database, merchantA, { balance: 1000 }),
    ];
    const stuck: Payout[] = [];
    for (let one = 0; one < 5; one += 1) stuck.push(await pay(services, locked, { destinationAccountNumber: failing }));
    const other = await pay(services, free);
    const refunded = await pay(services, free, { destinationAccountNumber: failing });
    await pass(delay);
    await database.transaction().execute(async (hanging) => {
      await sql`set local idle_in_transaction_session_timeout = 0`.execute(hanging);
      await hanging.updateTable('wallets').set({ currency: 'NGN' }).where('id', '=', locked).execute();
      await pass(delay);
      t.equal((await read(services, other)).status, 'successful');
      t.equal((await read(services, refunded)).status, 'failed');
      for (const one of stuck) t.equal((await read(services, one)).status, 'processing');
      t.match(
        logged,
        [{ details: { payout: stuck[0]?.id, err: /^DatabaseError: / } }],
        'the refund was attempted once',
      );
    });
    await pass(30_000);
    for (const one of stuck) t.equal((await read(services, one)).status, 'failed');
    t.equal(await balanceOf(database, locked), 1000);
  },
);

onEachServices(
  'more payouts than fit in one pass all reach a final state, also with a bank without delay',
  async (t, services) => {
    const { bank, clock, database } = services;
    const walletId = await addWallet(database, merchantA, { balance: 1000 });
    const first = await pay(services, walletId, { amount: 1 });
    const row = await database.selectFrom('payouts').selectAll().executeTakeFirstOrThrow();
    const copies = Array.from({ length: 230 }, (_, index) => ({
      ...row,
      sequence: undefined,
      id: `copy-${index}`,
      reference: `copy-${index}`,
    }));
    await database.insertInto('payouts').values(copies).execute();
    await database.updateTable('payouts').set({ due_at: 0 }).execute();
    while (await advancePayouts({ database, clock, bank: { ...bank, delayMilliseconds: 0 } }));
    t.equal((await read(services, first)).status, 'successful');
    const open = await database.selectFrom('payouts').select('id').where('status', '<>', 'successful').execute();
    t.same(open, []);
  },
);

onEachServices('a payout claimed before the clock was set back is still processed', async (t, services) => {
  const { database, pass } = services;
  const walletId = await addWallet(database, merchantA, { balance: 1000 });
  const payout = await pay(services, walletId);
  const day = 24 * 60 * 60 * 1000;
  const dueLate = (it: ExpressionBuilder<ServicesTables, 'payouts'>) => ({ due_at: it('due_at', '+', day) });
  await database.updateTable('payouts').set(dueLate).execute();
  await pass(0);
  t.equal((await read(services, payout)).status, 'processing');
  await database.updateTable('payouts').set(dueLate).execute();
  await pass(0);
  t.equal((await read(services, payout)).status, 'successful');
});

t.test('a periodic task continues after a failure with increasing backoff, and stops on request', async (t) => {
  const time = new ManualTime();
  const logged: object[] = [];
  const outcomes: (boolean | Error)[] = [true, false, new Error('away'), new Error('away'), new Error('away'), false];
  let passes = 0;
  const task = new PeriodicTask({
    ...{ name: 'test', pauseMilliseconds: 100, timers: time, logger: { error: (details) => logged.push(details) } },
    act: () => {
      const outcome = outcomes[passes] ?? false;
      passes += 1;
      return outcome instanceof Error ? Promise.reject(outcome) : Promise.resolve(outcome);
    },
  });
  task.start();
  for (const [done, pause] of [
    [2, 100],
    [3, 200],
    [4, 400],
    [5, 800],
    [6, 100],
  ] as const) {
    await until(() => passes === done && time.untilNext !== null);
    t.equal(time.untilNext, pause, `after ${done} passes`);
    time.advance(pause);
  }
  t.match(logged, [{ task: 'test', failures: 1 }, { failures: 2 }, { failures: 3 }]);
  await until(() => time.untilNext !== null);
  await task.stop();
  t.equal(time.untilNext, null);
});

t.test('while the database is unavailable a task is retried at short intervals and logs once', async (t) => {
  const time = new ManualTime();
  const logged: object[] = [];
  let passes = 0;
  const task = new PeriodicTask({
    ...{ name: 'test', pauseMilliseconds: 100, timers: time, logger: { error: (details) => logged.push(details) } },
    act: () => {
      passes += 1;
      return Promise.reject(new DatabaseError('away'));
    },
  });
  task.start();
  for (const pause of [200, 400, 500, 500]) {
    const before = passes;
    await until(() => time.untilNext !== null);
    t.equal(time.untilNext, pause);
    time.advance(pause);
    await until(() => passes > before);
  }
  await until(() => time.untilNext !== null);
  t.match(logged, [{ task: 'test', failures: 1 }]);
  t.equal(logged.length, 1);
  await task.stop();
});

/** Inconsistencies between wallets, payouts and entries. */
async function problemsOf(database: ServicesDatabase): Promise<string[]> {
  const wallets = await database.selectFrom('wallets').selectAll().execute();
  const transactions = await database.selectFrom('transactions').selectAll().orderBy('id').execute();
  const payouts = await database.selectFrom('payouts').selectAll().execute();
  const problems: string[] = [];
  for (const wallet of wallets) {
    let balance = 0;
    for (const { wallet_id, type, amount, balance_after: after } of transactions) {
      if (wallet_id !== wallet.id) continue;
      balance += type === 'credit' ? amount : -amount;
      if (after !== balance) problems.push(`a movement leaves ${balance} and says ${after}`);
      if (balance < 0) problems.push(`the balance was ${balance}`);
    }
    if (balance !== wallet.balance) problems.push(`the wallet has ${wallet.balance} and the ledger ${balance}`);
  }
  for (const { id, status, amount } of payouts) {
    const own = transactions.filter(({ payout_id }) => payout_id === id);
    const debitStatus = status === 'failed' ? 'reversed' : status === 'successful' ? status : 'pending';
    const expected = [
      `debit ${amount} ${debitStatus}`,
      ...(status === 'failed' ? [`credit ${amount} successful`] : []),
    ];
    const found = own.map((one) => `${one.type} ${one.amount} ${one.status}`);
    if (found.join() !== expected.join()) problems.push(`a ${status} payout has ${found.join()}`);
  }
  return problems;
}

type Step =
  | { readonly kind: 'pay'; readonly amount: number; readonly fails: boolean; readonly key: string | null }
  | { readonly kind: 'pass'; readonly milliseconds: number }
  | { readonly kind: 'race'; readonly amounts: readonly number[] };

const steps = fc.array(
  fc.oneof<fc.Arbitrary<Step>[]>(
    fc.record({
      kind: fc.constant('pay' as const),
      amount: fc.integer({ min: 1, max: 400 }),
      fails: fc.boolean(),
      key: fc.constantFrom<(string | null)[]>(null, 'a', 'b', 'c'),
    }),
    fc.record({ kind: fc.constant('pass' as const), milliseconds: fc.constantFrom(0, 30_000, delay) }),
    fc.record({
      kind: fc.constant('race' as const),
      amounts: fc.array(fc.integer({ min: 1, max: 400 }), { minLength: 2, maxLength: 4 }),
    }),
  ),
  { minLength: 3, maxLength: 12 },
);

onEachServices('after any mix of payouts, repeats, races and settlements the books agree', async (t, services) => {
  const { call, database, pass, logged } = services;
  const runs = t.name.includes('SQLite') ? 60 : 6;
  let run = 0;
  await fc.assert(
    fc.asyncProperty(steps, async (operations) => {
      run += 1;
      const walletId = await addWallet(database, merchantA, { balance: 1000 });
      const responses = new Map<string, string>();
      const send = (amount: number, fails: boolean, key: string | null) =>
        call(merchantA, 'POST', '/dev/payouts', {
          body: bankPayout(walletId, { amount, ...(fails ? { destinationAccountNumber: failing } : {}) }),
          ...(key === null ? {} : { headers: { 'idempotency-key': `${run}-${key}` } }),
        });
      for (const step of operations) {
        if (step.kind === 'pass') await pass(step.milliseconds);
        if (step.kind === 'race') await Promise.all(step.amounts.map((amount) => send(amount, false, null)));
        if (step.kind !== 'pay') continue;
        const response = JSON.stringify(await send(step.amount, step.fails, step.key));
        if (step.key === null) continue;
        const name = JSON.stringify(step);
        if ((responses.get(name) ?? response) !== response && !response.includes('used for another request'))
          return false;
        if (!response.includes('used for another request')) responses.set(name, response);
      }
      const problems = await problemsOf(database);
      if (problems.length > 0) throw new Error(problems.join('; '));
      return true;
    }),
    { numRuns: runs },
  );
  await pass(delay);
  await pass(delay);
  t.same(await problemsOf(database), []);
  t.same(await database.selectFrom('payouts').select('id').where('due_at', 'is not', null).execute(), []);
  t.same(logged, []);
});
