import {
  type CreateTableBuilder,
  type Kysely,
  PostgresAdapter,
  type RawBuilder,
  sql,
  type Transaction,
} from './kysely.js';

/**
 * Adds to a table that a migration creates a primary key that the database counts up. A number is never given twice, also
 * not after its row has gone; numbers may be left out.
 */
export function addSequence<Table extends string>(
  database: Kysely<unknown>,
  table: CreateTableBuilder<Table>,
  column: string,
) {
  return isPostgres(database)
    ? table.addColumn(column, 'bigint', (definition) => definition.primaryKey().generatedAlwaysAsIdentity())
    : table.addColumn(column, 'integer', (definition) => definition.primaryKey().autoIncrement());
}

/** Whether a database is PostgreSQL; otherwise it is SQLite. For the few statements that only one of them has. */
export function isPostgres<Tables>(database: Kysely<Tables>): boolean {
  return database.getExecutor().adapter instanceof PostgresAdapter;
}

/** A time, in milliseconds since 1970, as it stands in a statement. */
export type Moment = RawBuilder<number>;

/** Tells the time inside statements. */
export interface DatabaseClock {
  now(): Moment;
}

/** The moment at which the statement began: the same wherever it is named in it, and known before an index is read. */
const postgresNow = sql<number>`floor(extract(epoch from statement_timestamp()) * 1000)::bigint`;

/**
 * The clock by which everybody judges who uses a database. Processes on several machines share PostgreSQL and not their
 * clocks, so there it is the database's own; SQLite has one process, whose clock it is.
 */
export function databaseClock<Tables>(database: Kysely<Tables>, processClock: { now(): number }): DatabaseClock {
  return isPostgres(database) ? { now: () => postgresNow } : { now: () => momentOf(processClock.now()) };
}

/** A time that is known. */
export function momentOf(milliseconds: number): Moment {
  // PostgreSQL must be told the type of a value with which it shall reckon.
  return sql<number>`cast(${milliseconds} as bigint)`;
}

/** So many milliseconds after a moment, or before it. */
export function later(moment: Moment, milliseconds: number): Moment {
  return sql<number>`(${moment} + ${milliseconds})`;
}

/**
 * Takes a lock that any number of transactions may have at once, and that ends with the transaction, also when its process
 * dies. It waits for `lastNumber` alone, so it must come before whatever others wait for, such as a changed row. On SQLite a
 * transaction that writes has the whole database for itself, so there is nothing left to lock.
 */
export async function takeSharedLock<Tables>(transaction: Kysely<Tables>, name: string): Promise<void> {
  if (!isPostgres(transaction)) return;
  await sql`select pg_advisory_xact_lock_shared(hashtextextended(${name}, 0))`.execute(transaction);
}

/**
 * Waits until no transaction has the shared lock, and tells the last number that was then given in a column of `addSequence`:
 * whatever transactions with the lock add later has a larger one. Null on SQLite, which has one writer at a time.
 */
export async function lastNumber<Tables>(
  database: Kysely<Tables>,
  name: string,
  { table, column }: { readonly table: string; readonly column: string },
): Promise<number | null> {
  if (!isPostgres(database)) return null;
  // The number is read after the lock is taken: it is told of a row of the subquery, which has none before. What a
  // sequence has given is seen at once, whatever the statement's snapshot, so that one statement does.
  const { rows } = await sql<{ last: number | null }>`
    select pg_sequence_last_value(pg_get_serial_sequence(${table}, ${column})::regclass) as last
    from (select pg_advisory_xact_lock(hashtextextended(${name}, 0)) offset 0) as alone`.execute(database);
  return rows[0]?.last ?? 0;
}

/**
 * Lets a transaction wait for each lock for so long and no longer: then its statement fails with a DatabaseError. On SQLite
 * a transaction that writes has the whole database for itself, so there is nothing left to wait for.
 */
export async function limitLockWait<Tables>(transaction: Kysely<Tables>, milliseconds: number): Promise<void> {
  if (!isPostgres(transaction)) return;
  await sql`select set_config('lock_timeout', ${String(milliseconds)}, true)`.execute(transaction);
}

/**
 * Takes a lock that ends with the transaction, also when its process dies; does not wait for it. On SQLite a transaction
 * that writes has the whole database for itself, so there is nothing left to lock.
 * @returns false where another transaction has the lock
 */
export async function tryLock<Tables>(transaction: Transaction<Tables>, name: string): Promise<boolean> {
  if (!isPostgres(transaction)) return true;
  const { rows } = await sql<{ taken: boolean }>`
    select pg_try_advisory_xact_lock(hashtextextended(${name}, 0)) as taken`.execute(transaction);
  return rows[0]?.taken === true;
}

/**
 * Waits for a lock that one transaction has at a time, and that ends with it, also when its process dies: what follows sees whatever
 * the one before it committed. On SQLite a transaction that writes has the whole database for itself, so there is nothing left to lock.
 */
export async function waitForLock<Tables>(
  transaction: Kysely<Tables> | Transaction<Tables>,
  name: string,
): Promise<void> {
  if (!isPostgres(transaction)) return;
  await sql`select pg_advisory_xact_lock(hashtextextended(${name}, 0))`.execute(transaction);
}
