import Libsql from 'libsql';
import t, { type Test } from 'tap';
import { Kysely, sql } from '../../src/database/kysely.js';
import { LibsqlDialect } from '../../src/database/libsql-dialect.js';

interface Tables {
  things: { id: number; name: string };
}

/** An SQLite file whose table `things` has one row, and the texts that were prepared on the connection. */
async function openThings(t: Test) {
  const file = `${t.testdir()}/things.db`;
  const connection = new Libsql(file);
  connection.exec('pragma journal_mode = wal');
  const prepared: string[] = [];
  const prepare = connection.prepare.bind(connection);
  connection.prepare = (text: string) => {
    prepared.push(text);
    return prepare(text);
  };
  const database = new Kysely<Tables>({ dialect: new LibsqlDialect(connection) });
  t.teardown(() => database.destroy());
  await sql`create table things (id integer primary key, name text not null)`.execute(database);
  await database.insertInto('things').values({ id: 1, name: 'first' }).execute();
  prepared.length = 0;
  return { database, file, prepared };
}

t.test('a repeated statement is prepared once, and each run has its own values', async (t) => {
  const { database, prepared } = await openThings(t);
  const add = (id: number) => database.insertInto('things').values({ id, name: `thing ${id}` });
  await add(2).execute();
  await database.transaction().execute(async (transaction) => {
    await transaction.insertInto('things').values({ id: 3, name: 'thing 3' }).execute();
  });
  const named = (id: number) => database.selectFrom('things').select('name').where('id', '=', id);
  t.same(await named(2).execute(), [{ name: 'thing 2' }]);
  t.same(await named(3).execute(), [{ name: 'thing 3' }]);
  t.same(await named(4).execute(), []);
  t.equal(prepared.length, 1, 'the insert was prepared by `openThings`, so that only the select is new');
});

t.test('a statement that failed is prepared again, and does not block the commit', async (t) => {
  const { database, prepared } = await openThings(t);
  await database.transaction().execute(async (transaction) => {
    const add = (id: number) => transaction.insertInto('things').values({ id, name: 'new' }).returning('id').execute();
    t.same(await add(2), [{ id: 2 }]);
    await t.rejects(add(1), { code: /^SQLITE_CONSTRAINT/ });
    t.same(await add(3), [{ id: 3 }]);
  });
  t.equal(prepared.length, 2);
  t.equal((await database.selectFrom('things').selectAll().execute()).length, 3, 'the transaction is committed');
});

t.test('a prepared statement follows a change of the tables by another process', async (t) => {
  const { database, file } = await openThings(t);
  const all = () => database.selectFrom('things').selectAll().execute();
  t.same(await all(), [{ id: 1, name: 'first' }]);
  const other = new Libsql(file);
  other.exec('alter table things add column size integer default 7');
  other.close();
  t.same(await all(), [{ id: 1, name: 'first', size: 7 }]);
});

t.test('a long statement is not kept, so that the memory for prepared statements has a limit', async (t) => {
  const { database, prepared } = await openThings(t);
  const among = (ids: readonly number[]) => database.selectFrom('things').select('id').where('id', 'in', ids).execute();
  const many = Array.from({ length: 2_000 }, (_, index) => index);
  for (const ids of [many, many, [1], [1]]) t.same(await among(ids), [{ id: 1 }]);
  t.same(
    prepared.map((text) => text.length > 4_000),
    [true, true, false],
  );
});

// Regression: libsql aborted the process when the transaction failed.
t.test('closing the database during a transaction rejects the transaction and the waiting queries', async (t) => {
  const { database } = await openThings(t);
  const read = () => database.selectFrom('things').selectAll().execute();
  t.equal((await read()).length, 1);
  let waiting: Promise<unknown> = Promise.resolve();
  const transaction = database.transaction().execute(async () => {
    waiting = t.rejects(read(), /not open/);
    await new Promise(setImmediate);
    await database.destroy();
  });
  await t.rejects(transaction, /not open/);
  await waiting;
});
