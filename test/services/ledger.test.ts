import { readdirSync, readFileSync } from 'node:fs';
import t from 'tap';
import { sql } from '../../src/database/kysely.js';
import type { Tenant } from '../../src/services/assertion-verifier.js';
import { migrations } from '../../src/services/migrations/migrations.js';
import { listAccounts } from '../../src/services/operators/movement-routes.js';
import type { ServicesDatabase } from '../../src/services/services-database.js';
import { postgresAlone } from '../database/each-database.js';
import { migrateBeside, migrateBesideVacuum } from '../database/migrate-beside.js';
import { agreed, operatorsOf } from './operators-fixture.js';
import {
  addWallet,
  balanceOf,
  bankPayout,
  ledgerSum,
  merchantA,
  onEachServices,
  startOfTest,
} from './services-fixture.js';

/** Returns a reproducible generator of random numbers in [0, 1) (mulberry32). */
function randomFrom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** The balance of each account, by names such as `live NGN float`. */
async function accountsOf(database: ServicesDatabase): Promise<Record<string, number>> {
  const accounts = await listAccounts(database);
  return Object.fromEntries(
    accounts.map(({ environment, currency, account, balance }) => [
      `${environment} ${currency} ${account}`,
      Number(balance),
    ]),
  );
}

interface ModelWallet {
  readonly id: string;
  readonly tenant: Tenant;
  readonly currency: string;
  balance: number;
}

onEachServices(
  'after random operations each balance equals its entries, and all accounts sum to zero',
  async (t, services) => {
    const { call, database, pass } = services;
    const { open, move, check } = operatorsOf(t, services);
    const seed = Number(process.env.LEDGER_SEED ?? Math.floor(Math.random() * 2 ** 31));
    t.comment(`LEDGER_SEED=${seed}`);
    const random = randomFrom(seed);
    const below = (limit: number): number => Math.floor(random() * limit);
    const wallets: ModelWallet[] = [];
    const used: {
      wallet: ModelWallet;
      kind: 'fund' | 'withdraw';
      amount: number;
      reference: string;
      balanceAfter: number;
    }[] = [];
    const expected = { float: 0, payouts: 0 };
    /** Failing payouts that are not refunded yet. */
    let failing: { wallet: ModelWallet; amount: number }[] = [];

    const openOne = async (): Promise<void> => {
      const environment = below(4) === 0 ? 'test' : 'live';
      const tenant = { merchantId: `m_${below(3)}`, environment } as const;
      const currency = below(3) === 0 ? 'KES' : 'NGN';
      const id = await open(tenant.merchantId, { environment, currency });
      if (wallets.every((one) => one.id !== id)) wallets.push({ id, tenant, currency, balance: 0 });
    };
    const moveSome = async (wallet: ModelWallet, kind: 'fund' | 'withdraw'): Promise<void> => {
      const amount = 1 + below(1000);
      const reference = `r-${used.length}-${below(1e9)}`;
      const more = { currency: wallet.currency, environment: wallet.tenant.environment, reference };
      const { status, code, data } = await move(kind, wallet.id, amount, more);
      if (kind === 'withdraw' && amount > wallet.balance) {
        t.equal(code, 'insufficient_balance');
        return;
      }
      const change = kind === 'fund' ? amount : -amount;
      wallet.balance += change;
      expected.float -= change;
      if (status !== 201 || data.balanceAfter !== wallet.balance) t.fail(`${kind}: ${status}`);
      used.push({ wallet, kind, amount, reference, balanceAfter: data.balanceAfter });
    };
    const repeatOne = async (): Promise<void> => {
      const one = used[below(used.length)];
      if (one === undefined) return;
      const { wallet, kind, amount, reference, balanceAfter } = one;
      const more = { currency: wallet.currency, environment: wallet.tenant.environment, reference };
      const again = await move(kind, wallet.id, amount, more);
      if (again.status !== 200 || again.data.balanceAfter !== balanceAfter)
        t.fail('a repeated movement has another result');
    };
    const payOne = async (wallet: ModelWallet): Promise<void> => {
      const amount = 1 + below(800);
      const fails = below(3) === 0;
      const account = fails ? { destinationAccountNumber: '0000000000' } : {};
      const { status } = await call(wallet.tenant, 'POST', '/dev/payouts', {
        body: bankPayout(wallet.id, { amount, ...account }),
      });
      if (amount > wallet.balance) {
        t.equal(status, 422);
        return;
      }
      if (status !== 201) t.fail(`payout: ${status}`);
      wallet.balance -= amount;
      expected.payouts += amount;
      if (fails) failing.push({ wallet, amount });
    };
    const passTime = async (): Promise<void> => {
      await pass(200_000);
      await pass(200_000);
      for (const { wallet, amount } of failing) {
        wallet.balance += amount;
        expected.payouts -= amount;
      }
      failing = [];
    };

    for (let step = 0; step < 300; step += 1) {
      const wallet = wallets[below(wallets.length)];
      const kind = below(12);
      if (wallet === undefined || kind === 0) await openOne();
      else if (kind < 5) await moveSome(wallet, 'fund');
      else if (kind < 7) await moveSome(wallet, 'withdraw');
      else if (kind < 10) await payOne(wallet);
      else if (kind === 10) await repeatOne();
      else await passTime();
    }
    t.ok(used.length > 50 && wallets.length > 3, 'enough operations were made');
    for (const { id, balance } of wallets) {
      t.equal(await balanceOf(database, id), balance);
      t.equal(await ledgerSum(database, id), balance);
    }
    t.same(await check(), agreed);
    const accounts = await accountsOf(database);
    const sumOf = (account: string): number =>
      Object.entries(accounts).reduce((sum, [name, balance]) => sum + (name.endsWith(` ${account}`) ? balance : 0), 0);
    t.equal(sumOf('float'), expected.float);
    t.equal(sumOf('payouts'), expected.payouts);
  },
);

onEachServices('each entry names the counter account', async (t, services) => {
  const { call, database, pass } = services;
  const { open, move, operate } = operatorsOf(t, services);
  const walletId = await open('merchant_a');
  await move('fund', walletId, 1000, { reference: 'in', reason: 'Deposit' });
  await move('withdraw', walletId, 100, { reference: 'out' });
  await call(merchantA, 'POST', '/dev/payouts', { body: bankPayout(walletId, { amount: 200 }) });
  const lost = bankPayout(walletId, { amount: 50, destinationAccountNumber: '0000000000' });
  await call(merchantA, 'POST', '/dev/payouts', { body: lost });
  await pass(200_000);
  await pass(200_000);
  const { body } = await operate('GET', `/wallets/${walletId}/entries`);
  t.match(body.data, [
    { from: 'payouts', to: walletId, amount: 50, status: 'successful', reason: null, actor: null, balanceAfter: 700 },
    { from: walletId, to: 'payouts', amount: 50, status: 'reversed', balanceAfter: 650 },
    { from: walletId, to: 'payouts', amount: 200, status: 'successful', balanceAfter: 700 },
    { from: walletId, to: 'float', amount: 100, reference: 'out', balanceAfter: 900 },
    {
      from: 'float',
      to: walletId,
      amount: 1000,
      reference: 'in',
      reason: 'Deposit',
      actor: 'admin',
      balanceAfter: 1000,
    },
  ]);
  const found = async (wallet: string, reference: string) =>
    (await operate('GET', `/wallets/${wallet}/entries?reference=${reference}`)).body;
  t.match(await found(walletId, 'in'), { data: [{ reference: 'in', amount: 1000 }], meta: { total_records: 1 } });
  t.match(await found(walletId, 'un'), { data: [], meta: { total_records: 0 } });
  t.match(await found(await open('merchant_b'), 'in'), { data: [], meta: { total_records: 0 } }, 'of another wallet');
  t.same(await accountsOf(database), { 'live NGN float': -900, 'live NGN payouts': 200, 'live NGN wallets': 700 });
  const listed = (await operate('GET', '/accounts')).body.data as { account: string; balance: string }[];
  t.same(
    listed.map(({ account, balance }) => [account, balance]),
    [
      ['float', '-900'],
      ['payouts', '200'],
      ['wallets', '700'],
    ],
  );
});

onEachServices(
  'the check reports wallets whose balance differs from their entries, and changes nothing',
  async (t, services) => {
    const { database, logged } = services;
    const { open, move, check } = operatorsOf(t, services);
    const walletId = await open('merchant_a');
    const other = await open('merchant_b');
    await move('fund', walletId, 1000);
    await move('fund', other, 1000);
    t.same(await check(), agreed);
    t.same(logged, []);

    await sql`update wallets set balance = balance + 1 where id = ${walletId}`.execute(database);
    t.match(await check(), {
      ...{ mismatchedWallets: 1, unbalancedCurrencies: 1 },
      warnings: { length: 2 },
    });
    t.match(logged, [{ details: { wallets: [walletId], mismatchedWallets: 1, currencies: ['live NGN'] } }]);
    // The random id can contain these digits.
    t.notMatch(JSON.stringify(logged).replaceAll(walletId, ''), /100[01]/, 'the log contains no amounts');
    t.equal(await balanceOf(database, walletId), 1001, 'the check repairs nothing');
    await check();
    t.equal(logged.length, 1, 'a mismatch that stays is logged once');

    // Two differences that cancel each other out are found in the wallets, but not in the sum.
    await sql`update wallets set balance = balance - 1 where id = ${other}`.execute(database);
    t.match(await check(), { mismatchedWallets: 2, unbalancedCurrencies: 0 });
    t.match(logged.at(-1)?.details, { wallets: [walletId, other] });
  },
);

onEachServices('an entry in another currency than its wallet shows in the sum of the accounts', async (t, services) => {
  const { database } = services;
  const { open, move, check } = operatorsOf(t, services);
  const walletId = await open('merchant_a');
  await move('fund', walletId, 1000);
  await sql`update transactions set currency = 'KES'`.execute(database);
  t.match(await check(), { mismatchedWallets: 0, unbalancedCurrencies: 2 });
});

onEachServices('an entry written by the previous release counts as a payout', async (t, { database }) => {
  const walletId = await addWallet(database, merchantA, { balance: 100 });
  await sql`update wallets set balance = 60 where id = ${walletId}`.execute(database);
  // Inserted like the previous release does, without the columns that it does not know.
  await sql`insert into transactions
    (merchant_id, environment, created_at, wallet_id, type, status, amount, currency, reference, balance_after)
    values ('merchant_a', 'live', ${startOfTest}, ${walletId}, 'debit', 'pending', 40, 'NGN', 'former', 60)`.execute(
    database,
  );
  t.same(await accountsOf(database), { 'live NGN float': -100, 'live NGN payouts': 40, 'live NGN wallets': 60 });
});

t.test('PostgreSQL: the migration of a running deployment aborts no payout', postgresAlone, async (t) => {
  await migrateBeside(t, { migrations, from: '0003-ledger', tables: ['wallets', 'transactions'] });
  // The worker that settles payouts locks the tables in this order.
  await migrateBeside(t, { migrations, from: '0003-ledger', tables: ['transactions', 'wallets'] });
});

t.test('PostgreSQL: an autovacuum does not stop the migration', postgresAlone, async (t) => {
  await migrateBesideVacuum(t, { migrations, from: '0003-ledger' }, 'transactions');
});

t.test('only the ledger modules write balances, wallets and entries', (t) => {
  const files = readdirSync('src', { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith('.ts'))
    .map((entry) => `${entry.parentPath}/${entry.name}`);
  const writes = [
    /\b(?:insertInto|replaceInto|mergeInto)\(\s*'(?:wallets|transactions)'/,
    /\bupdateTable\(\s*'wallets'/,
    /\bdeleteFrom\(\s*'(?:wallets|transactions)'/,
    /\b(?:insert into|delete from|truncate)\s+(?:wallets|transactions)\b|\bupdate wallets\b/i,
  ];
  const writers = files.filter((file) => {
    const text = readFileSync(file, 'utf8');
    return writes.some((write) => write.test(text));
  });
  t.same(writers.toSorted(), ['src/services/ledger/move-money.ts', 'src/services/ledger/open-wallet.ts']);
  // Only the payout status of an entry is ever updated.
  const changers = files.filter((file) =>
    /\bupdateTable\(\s*'transactions'|\bupdate transactions\b/i.test(readFileSync(file, 'utf8')),
  );
  t.same(changers.toSorted(), ['src/services/migrations/0003-ledger.ts', 'src/services/transactions/repository.ts']);
  t.end();
});
