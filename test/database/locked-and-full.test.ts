import { sql, type Generated, type Kysely } from '../../src/database/kysely.js';
import t, { type Test } from 'tap';
import { addSequence } from '../../src/database/dialects.js';
import { migrate, type Migrations, openDatabase } from '../../src/database/open-database.js';
import { holdLock } from './held-lock.js';

interface Tables {
  things: { id: Generated<number>; name: string };
}

const migrations: Migrations = {
  '0001-things': {
    up: async (database: Kysely<unknown>) => {
      await addSequence(database, database.schema.createTable('things'), 'id')
        .addColumn('name', 'text', (column) => column.unique().notNull())
        .execute();
    },
  },
};

async function sqliteWithThings(t: Test) {
  const url = `sqlite:${t.testdir()}/test.db`;
  const database = openDatabase<Tables>({ url });
  t.teardown(() => database.destroy());
  await migrate(database, migrations);
  await database.insertInto('things').values({ name: 'first' }).execute();
  const names = async () =>
    (await database.selectFrom('things').select('name').orderBy('id').execute()).map((thing) => thing.name);
  return { url, database, names };
}

/** Starts one write of each kind that the product uses. */
function writes(database: Kysely<Tables>, name: string): Promise<unknown>[] {
  const insert = (into: Kysely<Tables>, part: string) => into.insertInto('things').values({ name: `${name} ${part}` });
  return [
    database.transaction().execute((transaction) => insert(transaction, 'in a transaction').execute()),
    insert(database, 'alone').execute(),
    insert(database, 'returning').returningAll().execute(),
    database.schema.createTable(`${name}s`).addColumn('id', 'integer').execute(),
  ];
}

t.test(
  'while another program holds the lock, reads continue, and writes wait without blocking the process',
  async (t) => {
    const { url, database, names } = await sqliteWithThings(t);
    const lock = await holdLock(t, url);
    let settled = 0;
    const waiting = writes(database, 'later').map((write) => write.finally(() => (settled += 1)));
    const all = Promise.all(waiting);
    t.same(await names(), ['first']);
    t.equal(settled, 0);
    await lock.release();
    await all;
    t.same(await names(), ['first', 'later in a transaction', 'later alone', 'later returning']);
  },
);

t.test('a lock held too long fails the waiting writes, but no later ones', async (t) => {
  const { url, database, names } = await sqliteWithThings(t);
  const lock = await holdLock(t, url);
  const busy = { name: 'DatabaseError', condition: 'busy', message: /is locked by another program/ };
  await Promise.all(writes(database, 'never').map((write) => t.rejects(write, busy)));
  t.same(await names(), ['first']);
  await lock.release();
  await Promise.all(writes(database, 'now'));
  t.same(await names(), ['first', 'now in a transaction', 'now alone', 'now returning']);
});

t.test('a full disk is reported as the cause despite a failing rollback, and freed space resolves it', async (t) => {
  const { database, names } = await sqliteWithThings(t);
  const big = 'x'.repeat(100_000);
  const full = { name: 'DatabaseError', condition: 'full', message: /disk is full/, cause: { code: 'SQLITE_FULL' } };
  await sql`pragma max_page_count = 1`.execute(database);
  const inTransaction = database.transaction().execute(async (transaction) => {
    await transaction.insertInto('things').values({ name: 'small' }).execute();
    await t.rejects(transaction.insertInto('things').values({ name: big }).execute(), full);
    // SQLite has rolled back the transaction: this statement must not commit on its own.
    await transaction.insertInto('things').values({ name: 'after it' }).execute();
  });
  await t.rejects(inTransaction, full);
  await t.rejects(database.insertInto('things').values({ name: big }).execute(), full);
  t.same(await names(), ['first']);
  await sql`pragma max_page_count = 1000000`.execute(database);
  await Promise.all(writes(database, 'now'));
  t.equal((await names()).length, 4);
});

t.test('a database file that cannot be opened is reported with a remedy, and not as a failing disk', async (t) => {
  const { database, names } = await sqliteWithThings(t);
  const nowhere = `${t.testdirName}/nowhere/other.db`;
  await t.rejects(sql`attach database ${nowhere} as other`.execute(database), {
    ...{ name: 'DatabaseError', condition: 'away' },
    message: /\(SQLITE_CANTOPEN\w*\): one of its files cannot be opened; check that its directory exists, /,
  });
  t.same(await names(), ['first']);
});
