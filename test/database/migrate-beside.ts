import { setTimeout as wait } from 'node:timers/promises';
import pg from 'pg';
import type { Test } from 'tap';
import { migrate, type Migrations, openDatabase, openMigrated } from '../../src/database/open-database.js';
import { createPostgresDatabase } from './each-database.js';

/** Long timeouts: a machine that is busy with other tests must not look like an unavailable database. */
const pool = { maxConnections: 2, connectTimeoutSeconds: 120, statementTimeoutSeconds: 120 };

interface Beside {
  readonly migrations: Migrations;
  readonly from: string;
}

/** Creates a database with the migrations before `from`. Returns its URL, and a client in an open transaction. */
async function startFormer(t: Test, { migrations, from }: Beside) {
  const url = await createPostgresDatabase(t);
  const former = openDatabase<unknown>({ url, pool });
  await migrate(former, Object.fromEntries(Object.entries(migrations).filter(([name]) => name < from)));
  await former.destroy();
  const other = new pg.Client({ connectionString: url });
  await other.connect();
  await other.query('begin');
  return { url, other };
}

const waiting = `select from pg_locks where not granted and database =
  (select oid from pg_database where datname = current_database())`;

/**
 * Migrates a PostgreSQL database, beginning with the migration `from`, while another client holds a lock on the table
 * like that of an autovacuum. PostgreSQL cancels an autovacuum only for a client that waits longer than
 * `deadlock_timeout`, so the migration must wait longer than that.
 */
export async function migrateBesideVacuum(t: Test, beside: Beside, table: string): Promise<void> {
  const { url, other } = await startFormer(t, beside);
  await other.query(`lock table ${table} in share update exclusive mode`);
  const migrating = openMigrated<unknown>({ url, pool }, beside.migrations);
  const over = migrating.then(
    () => true,
    () => true,
  );
  const waitsLong = `${waiting} and clock_timestamp() - waitstart > interval '1100 milliseconds'`;
  const isOver = () => Promise.race([over, wait(10, false)]);
  let hasWaited = false;
  while (!hasWaited && !(await isOver())) hasWaited = (await other.query(waitsLong)).rowCount !== 0;
  t.ok(hasWaited, `${table}: the migration waits long enough for the end of an autovacuum`);
  await other.query('commit');
  await other.end();
  await t.resolves(migrating.then((database) => database.destroy()));
}

/**
 * Migrates a PostgreSQL database, beginning with the migration `from`. Meanwhile another transaction, which has locked
 * one table, locks a second one. Neither the transaction nor the migration may fail.
 */
export async function migrateBeside(
  t: Test,
  { tables, ...beside }: Beside & { readonly tables: readonly [string, string] },
): Promise<void> {
  const { url, other } = await startFormer(t, beside);
  // PostgreSQL resolves a deadlock by aborting the client whose `deadlock_timeout` ends first. With 60 s, that is never
  // this client, even if the migration's lock timeout fires late on a busy machine.
  await other.query("set deadlock_timeout = '60s'");
  // Locks a table as an insert or an update does.
  const lock = (table: string) => other.query(`lock table ${table} in row exclusive mode`);
  await lock(tables[0]);
  const migrating = openMigrated<unknown>({ url, pool }, beside.migrations);
  migrating.catch(() => undefined); // examined below
  while ((await other.query(waiting)).rowCount === 0) await wait(10);
  await t.resolves(lock(tables[1]), `${tables.join(', ')}: the transaction continues`);
  await other.query('commit');
  await other.end();
  await t.resolves(
    migrating.then((database) => database.destroy()),
    `${tables.join(', ')}: the migration succeeds`,
  );
}
