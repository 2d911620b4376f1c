import { setTimeout as wait } from 'node:timers/promises';
import { sql, type KyselyPlugin } from '../../src/database/kysely.js';
import t, { type Test } from 'tap';
import { listCustomers } from '../../src/services/customers/repository.js';
import { listPayouts } from '../../src/services/payouts/repository.js';
import { openServicesDatabase, type ServicesDatabase } from '../../src/services/services-database.js';
import { listTransactions } from '../../src/services/transactions/repository.js';
import { createPostgresDatabase, postgresAlone } from '../database/each-database.js';
import {
  addWallet,
  bankPayout,
  merchantA,
  merchantB,
  patient,
  servicesFixture,
  type ServicesUnderTest,
} from './services-fixture.js';

const delay = 60_000;
const gate = 42;
const paging = { page: 1, perPage: 20 };

/** Two concurrent writers. The first has its sequence number and is held up before it commits. */
interface Race {
  readonly name: string;
  readonly list: typeof listPayouts | typeof listTransactions | typeof listCustomers;
  readonly table: 'payouts' | 'transactions' | 'customers';
  /** The SQL condition for the row to hold up; `slow` is the id of its wallet. */
  readonly held: (slow: string) => string;
  readonly prepare?: (services: ServicesUnderTest, slow: string) => Promise<unknown>;
  readonly first: (services: ServicesUnderTest, slow: string) => Promise<unknown>;
  readonly second: (services: ServicesUnderTest, quick: string) => Promise<{ status: number }>;
}

const pay = ({ call }: ServicesUnderTest, walletId: string, changes = {}) =>
  call(merchantA, 'POST', '/dev/payouts', { body: bankPayout(walletId, changes) });
let people = 0;
const meet = ({ call }: ServicesUnderTest, name: string) => {
  const body = { email: `ada${(people += 1)}@example.com`, firstName: name, lastName: 'Obi' };
  return call(merchantA, 'POST', '/dev/customers', { body });
};

const races: readonly Race[] = [
  {
    ...{ name: 'payouts from two wallets', list: listPayouts, table: 'payouts' },
    held: (slow) => `new.wallet_id = '${slow}'`,
    first: pay,
    second: pay,
  },
  {
    ...{ name: 'debits of two wallets', list: listTransactions, table: 'transactions' },
    held: (slow) => `new.wallet_id = '${slow}'`,
    first: pay,
    second: pay,
  },
  {
    ...{ name: 'a refund and a debit', list: listTransactions, table: 'transactions' },
    held: () => `new.type = 'credit'`,
    prepare: async (services, slow) => {
      await pay(services, slow, { destinationAccountNumber: '0000000000' });
      await services.pass(delay);
    },
    first: ({ pass }) => pass(delay),
    second: pay,
  },
  {
    ...{ name: 'customers', list: listCustomers, table: 'customers' },
    held: () => `new.first_name = 'slow'`,
    first: (services) => meet(services, 'slow'),
    second: (services) => meet(services, 'quick'),
  },
];

/** Controls how a list is read; `write` starts the two writers. */
type Read = (
  read: (database?: ServicesDatabase) => ReturnType<Race['list']>,
  write: () => Promise<void>,
) => Promise<View>;
interface View {
  readonly page: ReturnType<Race['list']>;
}

/** Runs the races. Compares each page with the same page once both writers have ended. */
async function raceAll(t: Test, howToRead: (services: ServicesUnderTest, control: ServicesDatabase) => Read) {
  const url = await createPostgresDatabase(t);
  const services = await servicesFixture(t, { url });
  const control = await openServicesDatabase({ url, pool: patient });
  t.teardown(() => control.destroy());
  await sql`create function hold() returns trigger language plpgsql as
    'begin perform pg_advisory_xact_lock_shared(${sql.lit(gate)}); return new; end'`.execute(control);
  await meet(services, 'earlier');
  await pay(services, await addWallet(services.database, merchantA, { balance: 1000 }));

  for (const { name, list, table, held, prepare, first, second } of races) {
    await t.test(name, async (t) => {
      const slow = await addWallet(services.database, merchantA, { balance: 1000 });
      const quick = await addWallet(services.database, merchantA, { balance: 1000 });
      await prepare?.(services, slow);
      await sql`create trigger hold after insert on ${sql.table(table)} for each row
        when (${sql.raw(held(slow))}) execute function hold()`.execute(control);
      const read = (database = services.database) => list(database, merchantA, {}, paging);
      let one: Promise<unknown> = Promise.resolve();
      const view = await control.transaction().execute(async (closed) => {
        await sql`select pg_advisory_xact_lock(${sql.lit(gate)})`.execute(closed);
        return howToRead(services, control)(read, async () => {
          one = first(services, slow);
          while ((await waiting(control, sql`objid = ${gate}`)) === 0) await wait(1);
          t.equal((await second(services, quick)).status, 201, 'inserts do not wait for each other');
        });
      });
      await one;
      const before = await view.page;
      const after = await list(services.database, merchantA, { up_to: String(before.items[0]?.id) }, paging);
      t.same(
        after.items.map(({ id }) => id),
        before.items.map(({ id }) => id),
      );
      t.equal(after.totalRecords, before.totalRecords);
      await sql`drop trigger hold on ${sql.table(table)}`.execute(control);
    });
  }
}

t.test('a list waits for the inserts of its merchant that started before it, and for no others', postgresAlone, (t) =>
  raceAll(t, ({ call }, control) => async (read, write) => {
    await write();
    t.equal((await call(merchantB, 'GET', '/transactions')).status, 200, 'the list of another merchant does not wait');
    const ended: unknown[] = [];
    const page = read().finally(() => ended.push(null));
    while (ended.length === 0 && (await waiting(control, sql`objid <> ${gate}`)) === 0) await wait(1);
    return { page };
  }),
);

t.test('a list omits records that are added after it began', postgresAlone, (t) =>
  raceAll(t, ({ database }) => async (read, write) => {
    let isBegun = false;
    const writersAfterItsFirstStatement: KyselyPlugin = {
      transformQuery: ({ node }) => node,
      transformResult: async ({ result }) => {
        if (!isBegun) {
          isBegun = true;
          await write();
        }
        return result;
      },
    };
    const page = read(database.withPlugin(writersAfterItsFirstStatement));
    await page;
    return { page };
  }),
);

/** Number of sessions that wait for an advisory lock in this database. `which` is an SQL condition for the lock. */
async function waiting(database: ServicesDatabase, which: ReturnType<typeof sql>): Promise<number> {
  const { rows } = await sql<{ count: number }>`select count(*) as count from pg_locks
    where locktype = 'advisory' and not granted and ${which}
    and database = (select oid from pg_database where datname = current_database())`.execute(database);
  return rows[0]?.count ?? 0;
}
