import {
  type CreateTableBuilder,
  type Kysely,
  PostgresAdapter,
  type RawBuilder,
  sql,
  type Transaction,
} from './kysely.js';

/**
 * Adds an auto-increment primary key to a table that a migration creates. A number is never reused, even after its row
 * is deleted; gaps are possible.
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

/** Whether a database is PostgreSQL rather than SQLite, for the few statements that only one of them supports. */
export function isPostgres<Tables>(database: Kysely<Tables>): boolean {
  return database.getExecutor().adapter instanceof PostgresAdapter;
}

/** A time in milliseconds since 1970, as an SQL expression. */
export type SqlTime = RawBuilder<number>;

/** The current time as an SQL expression. */
export interface DatabaseClock {
  now(): SqlTime;
}

/** The start of the statement: the same wherever the statement uses it, and known before an index is read. */
const postgresNow = sql<number>`floor(extract(epoch from statement_timestamp()) * 1000)::bigint`;

/**
 * The clock by which all processes that share a database judge time. On PostgreSQL it is the server's clock, because
 * processes on several machines share no other. SQLite has one process and uses its clock.
 */
export function databaseClock<Tables>(database: Kysely<Tables>, processClock: { now(): number }): DatabaseClock {
  return isPostgres(database) ? { now: () => postgresNow } : { now: () => sqlTime(processClock.now()) };
}

/** A known time, in milliseconds since 1970, as an SQL expression. */
export function sqlTime(milliseconds: number): SqlTime {
  // PostgreSQL must know the type of a parameter used in arithmetic.
  return sql<number>`cast(${milliseconds} as bigint)`;
}

/** A time plus milliseconds, which may be negative. */
export function addMilliseconds(moment: SqlTime, milliseconds: number): SqlTime {
  return sql<number>`(${moment} + ${milliseconds})`;
}

/**
 * Takes a lock that any number of transactions can share. It ends with the transaction, even when the process dies.
 * Only `lastSequenceValue` makes it wait, so take it before anything that other transactions wait for, such as an updated row.
 * SQLite needs no lock: a write transaction has the whole database.
 */
export async function takeSharedLock<Tables>(transaction: Kysely<Tables>, name: string): Promise<void> {
  if (!isPostgres(transaction)) return;
  await sql`select pg_advisory_xact_lock_shared(hashtextextended(${name}, 0))`.execute(transaction);
}

/**
 * Waits until no transaction holds the shared lock, then returns the last number assigned in a column of `addSequence`.
 * Rows that transactions add later under the lock have larger numbers. Null on SQLite, which has one writer at a time.
 */
export async function lastSequenceValue<Tables>(
  database: Kysely<Tables>,
  name: string,
  { table, column }: { readonly table: string; readonly column: string },
): Promise<number | null> {
  if (!isPostgres(database)) return null;
  // The subquery has no row before it holds the lock, so the number is read afterwards. Sequence values do not depend
  // on the statement's snapshot: one statement is enough.
  const { rows } = await sql<{ last: number | null }>`
    select pg_sequence_last_value(pg_get_serial_sequence(${table}, ${column})::regclass) as last
    from (select pg_advisory_xact_lock(hashtextextended(${name}, 0)) offset 0) as alone`.execute(database);
  return rows[0]?.last ?? 0;
}

/**
 * Sets the lock timeout of a transaction. A statement that exceeds it fails with a DatabaseError. SQLite needs no timeout: a
 * write transaction has the whole database.
 */
export async function limitLockWait<Tables>(transaction: Kysely<Tables>, milliseconds: number): Promise<void> {
  if (!isPostgres(transaction)) return;
  await sql`select set_config('lock_timeout', ${String(milliseconds)}, true)`.execute(transaction);
}

/**
 * Tries to take a lock, without waiting. It ends with the transaction, even when the process dies. SQLite needs no
 * lock: a write transaction has the whole database.
 * @returns false when another transaction holds the lock
 */
export async function tryLock<Tables>(transaction: Transaction<Tables>, name: string): Promise<boolean> {
  if (!isPostgres(transaction)) return true;
  const { rows } = await sql<{ taken: boolean }>`
    select pg_try_advisory_xact_lock(hashtextextended(${name}, 0)) as taken`.execute(transaction);
  return rows[0]?.taken === true;
}

/**
 * Waits for an exclusive lock. It ends with the transaction, even when the process dies. Later statements see what the
 * previous holder committed. SQLite needs no lock: a write transaction has the whole database.
 */
export async function takeLock<Tables>(transaction: Kysely<Tables> | Transaction<Tables>, name: string): Promise<void> {
  if (!isPostgres(transaction)) return;
  await sql`select pg_advisory_xact_lock(hashtextextended(${name}, 0))`.execute(transaction);
}
