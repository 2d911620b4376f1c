import {
  type CreateTableBuilder,
  type Kysely,
  PostgresAdapter,
  type RawBuilder,
  sql,
  type Transaction,
} from './kysely.js';

/**
 * Adds an auto-increment primary key to a new table. A number is never reused, even after its row is deleted. There can
 * be gaps.
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

/** Whether a database is PostgreSQL rather than SQLite. Used for the few statements that differ between the two. */
export function isPostgres<Tables>(database: Kysely<Tables>): boolean {
  return database.getExecutor().adapter instanceof PostgresAdapter;
}

/** A time in milliseconds since 1970, as an SQL expression. */
export type SqlTime = RawBuilder<number>;

/** Provides the current time as an SQL expression. */
export interface DatabaseClock {
  now(): SqlTime;
}

/**
 * The start time of the statement. It is constant within the statement, so PostgreSQL can use it to search an index.
 */
const postgresNow = sql<number>`floor(extract(epoch from statement_timestamp()) * 1000)::bigint`;

/**
 * Returns the clock for all processes that share a database. On PostgreSQL this is the server's clock, because the
 * clocks of several machines differ. On SQLite it is the clock of the only process.
 */
export function databaseClock<Tables>(database: Kysely<Tables>, processClock: { now(): number }): DatabaseClock {
  return isPostgres(database) ? { now: () => postgresNow } : { now: () => sqlTime(processClock.now()) };
}

/** Converts a time in milliseconds since 1970 to an SQL expression. */
export function sqlTime(milliseconds: number): SqlTime {
  // PostgreSQL needs the type of a parameter that is used in arithmetic.
  return sql<number>`cast(${milliseconds} as bigint)`;
}

/** Adds milliseconds to a time. A negative number gives an earlier time. */
export function addMilliseconds(moment: SqlTime, milliseconds: number): SqlTime {
  return sql<number>`(${moment} + ${milliseconds})`;
}

/**
 * Takes a shared lock until the end of the transaction. Several transactions can hold it at once. Call this before the
 * transaction locks rows: the call can wait for `lastSequenceValue`, which takes the lock exclusively, and row locks
 * would block other transactions meanwhile. SQLite needs no lock: a write transaction locks the whole database.
 */
export async function takeSharedLock<Tables>(transaction: Kysely<Tables>, name: string): Promise<void> {
  if (!isPostgres(transaction)) return;
  await sql`select pg_advisory_xact_lock_shared(hashtextextended(${name}, 0))`.execute(transaction);
}

/**
 * Waits until no transaction holds the shared lock, then returns the last number of a column that `addSequence` added.
 * Transactions that take the shared lock later add rows with larger numbers. Returns null on SQLite, where only one
 * transaction writes at a time, so no such number is needed.
 */
export async function lastSequenceValue<Tables>(
  database: Kysely<Tables>,
  name: string,
  { table, column }: { readonly table: string; readonly column: string },
): Promise<number | null> {
  if (!isPostgres(database)) return null;
  // The subquery returns its row only once it has the lock, so the sequence is read while the lock is held. One
  // statement is enough, because sequence values do not depend on the statement's snapshot.
  const { rows } = await sql<{ last: number | null }>`
    select pg_sequence_last_value(pg_get_serial_sequence(${table}, ${column})::regclass) as last
    from (select pg_advisory_xact_lock(hashtextextended(${name}, 0)) offset 0) as alone`.execute(database);
  return rows[0]?.last ?? 0;
}

/**
 * Sets the lock timeout of a transaction. A statement that exceeds it fails with a DatabaseError. SQLite needs no
 * timeout: a write transaction locks the whole database.
 */
export async function limitLockWait<Tables>(transaction: Kysely<Tables>, milliseconds: number): Promise<void> {
  if (!isPostgres(transaction)) return;
  await sql`select set_config('lock_timeout', ${String(milliseconds)}, true)`.execute(transaction);
}

/**
 * Tries to take an exclusive lock without waiting for it. The lock lasts until the end of the transaction. SQLite needs
 * no lock: a write transaction locks the whole database.
 * @returns false if another transaction holds the lock
 */
export async function tryLock<Tables>(transaction: Transaction<Tables>, name: string): Promise<boolean> {
  if (!isPostgres(transaction)) return true;
  const { rows } = await sql<{ taken: boolean }>`
    select pg_try_advisory_xact_lock(hashtextextended(${name}, 0)) as taken`.execute(transaction);
  return rows[0]?.taken === true;
}

/**
 * Waits for an exclusive lock, which lasts until the end of the transaction. Later statements see what the previous
 * holder committed. SQLite needs no lock: a write transaction locks the whole database.
 */
export async function takeLock<Tables>(transaction: Kysely<Tables> | Transaction<Tables>, name: string): Promise<void> {
  if (!isPostgres(transaction)) return;
  await sql`select pg_advisory_xact_lock(hashtextextended(${name}, 0))`.execute(transaction);
}

/** The columns of the rows that `givenRows` passes to a statement: the SQL type of each column, by its name. */
export type GivenColumns = Readonly<Record<string, 'text' | 'bigint' | 'double precision'>>;

/**
 * Builds an SQL table expression with the name `given` and these rows, for use after FROM. The rows are one JSON
 * parameter, so that a statement can add thousands of them although databases limit the number of parameters. Texts
 * must not contain NUL, which PostgreSQL cannot store.
 */
export function givenRows<Tables>(
  database: Kysely<Tables>,
  rows: readonly object[],
  columns: GivenColumns,
): RawBuilder<unknown> {
  const names = Object.entries(columns);
  const json = JSON.stringify(rows);
  if (isPostgres(database)) {
    const typed = names.map(([name, type]) => sql`${sql.id(name)} ${sql.raw(type)}`);
    return sql`json_to_recordset(cast(${json} as json)) as given(${sql.join(typed)})`;
  }
  const values = names.map(([name]) => sql`json_extract(value, ${sql.lit(`$.${name}`)}) as ${sql.id(name)}`);
  return sql`(select ${sql.join(values)} from json_each(${json})) as given`;
}

/**
 * Deletes the rows that a query finds. Selects them by their position in the table (`ctid` or `rowid`): if it compared
 * other columns, PostgreSQL could read the whole table.
 * @param found the part of the query after `FROM table`, such as joins and conditions; it refers to the table as
 *   `found`
 * @returns the number of deleted rows
 */
export async function deleteFound<Tables>(
  database: Kysely<Tables>,
  table: string,
  found: RawBuilder<unknown>,
): Promise<number> {
  const place = isPostgres(database) ? sql.raw('ctid') : sql.raw('rowid');
  const rows = sql`select found.${place} from ${sql.table(table)} as found ${found}`;
  const matches = isPostgres(database) ? sql`= any(array(${rows}))` : sql`in (${rows})`;
  const { numAffectedRows } = await sql`delete from ${sql.table(table)} where ${place} ${matches}`.execute(database);
  return Number(numAffectedRows ?? 0);
}
