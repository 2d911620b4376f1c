import { setTimeout as pause } from 'node:timers/promises';
import { DatabaseError } from './database-error.js';
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
 * clocks of several machines differ. On SQLite it is `processClock`, because all processes run on one machine.
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
 * Takes a shared lock until the end of the transaction. Several transactions can hold the lock at once. The call can
 * wait for `lastSequenceValue`, which takes the same lock exclusively. So call this before the transaction locks rows:
 * row locks would block other transactions during the wait. SQLite needs no lock: a write transaction locks the whole
 * database.
 */
export async function takeSharedLock<Tables>(transaction: Kysely<Tables>, name: string): Promise<void> {
  if (!isPostgres(transaction)) return;
  await sql`select pg_advisory_xact_lock_shared(hashtextextended(${name}, 0))`.execute(transaction);
}

/**
 * Waits until no transaction holds the lock of `takeSharedLock`. Then returns the last number assigned in a column that
 * `addSequence` added; 0 if no number was assigned. Rows up to this number are now visible, and transactions that take
 * the shared lock later add rows with larger numbers. On SQLite, returns null without waiting. Only one transaction
 * writes at a time there, so rows become visible in the order of their numbers.
 * @throws DatabaseError if the user of PostgreSQL may not read the sequence; its message has the missing grant
 */
export async function lastSequenceValue<Tables>(
  database: Kysely<Tables>,
  name: string,
  { table, column }: { readonly table: string; readonly column: string },
): Promise<number | null> {
  if (!isPostgres(database)) return null;
  // The subquery returns its row only once it has the lock, so the sequence is read while the lock is held. One
  // statement is enough, because sequence values do not depend on the statement's snapshot.
  const { rows } = await sql<{ isReadable: boolean; last: number | null; schema: string; user: string }>`
    select "isReadable", case when "isReadable" then pg_sequence_last_value(sequence::regclass) end as last,
      quote_ident(current_schema()) as schema, quote_ident(current_user) as user
    from (
      select sequence, has_sequence_privilege(sequence, 'select, usage') as "isReadable",
        pg_advisory_xact_lock(hashtextextended(${name}, 0))
      from (select pg_get_serial_sequence(${table}, ${column}) as sequence) as found offset 0
    ) as alone`.execute(database);
  const [row] = rows;
  // Without this right, PostgreSQL 18 returns the same null as for an unused sequence, and lists would be empty.
  if (row?.isReadable === false) {
    throw new DatabaseError(
      `The PostgreSQL user ${row.user} cannot list ${table}, because it lacks the privilege to read the sequence of this table. As the owner of the tables, run: grant select on all sequences in schema ${row.schema} to ${row.user}`,
    );
  }
  return row?.last ?? 0;
}

/**
 * Sets the lock timeout of a transaction. A statement that exceeds it fails with a DatabaseError. SQLite needs no
 * timeout: a write transaction locks the whole database.
 */
export async function limitLockWait<Tables>(transaction: Kysely<Tables>, milliseconds: number): Promise<void> {
  if (!isPostgres(transaction)) return;
  await sql`select set_config('lock_timeout', ${String(milliseconds)}, true)`.execute(transaction);
}

/** Maximum wait of one try of `lockTables`, shorter than the default `deadlock_timeout` of PostgreSQL (1 second). */
const tryMilliseconds = 900;
/** Pause between two tries of `lockTables`, in which the requests that waited for the tables can run. */
const pauseMilliseconds = 250;
/** Maximum wait of `waitAlone` for its one table, longer than the default `deadlock_timeout` (1 second). */
const aloneMilliseconds = 2_000;
/** After this time `lockTables` does not try again. */
const lastTryMilliseconds = 30_000;

/**
 * Locks these tables until the end of the transaction, so that no other transaction can read or write them. Requests
 * lock the same tables in several orders, so a wait can become a deadlock. PostgreSQL would end it by aborting one of
 * the transactions. So this function waits only briefly, gives its locks back, and tries again for half a minute.
 * SQLite needs no lock: a write transaction locks the whole database.
 * @throws DatabaseError if other transactions hold a table all the time
 */
export async function lockTables(transaction: Kysely<unknown>, tables: readonly string[]): Promise<void> {
  if (!isPostgres(transaction)) return;
  const lock = sql`lock table ${sql.join(tables.map((table) => sql.table(table)))} in access exclusive mode`;
  const { rows } = await sql<{ former: string }>`select current_setting('lock_timeout') as former`.execute(transaction);
  const until = performance.now() + lastTryMilliseconds;
  await sql`savepoint before_locks`.execute(transaction);
  for (;;) {
    try {
      // The timeout applies to each table, so the waits for all of them add up.
      await limitLockWait(transaction, Math.floor(tryMilliseconds / tables.length));
      await lock.execute(transaction);
      break;
    } catch (error) {
      if (!isBusy(error) || performance.now() > until) throw error;
      await sql`rollback to savepoint before_locks`.execute(transaction);
    }
    // PostgreSQL cancels an autovacuum that is in the way, but only after `deadlock_timeout`. A transaction that holds
    // no other table can wait that long without a deadlock.
    for (const table of tables) await waitAlone(transaction, table);
    await pause(pauseMilliseconds);
  }
  await sql`release savepoint before_locks`.execute(transaction);
  await sql`select set_config('lock_timeout', ${rows[0]?.former ?? '0'}, true)`.execute(transaction);
}

/** Waits at most 2 seconds until it can lock a table, and releases the lock. Needs the savepoint `before_locks`. */
async function waitAlone(transaction: Kysely<unknown>, table: string): Promise<void> {
  await limitLockWait(transaction, aloneMilliseconds);
  await sql`lock table ${sql.table(table)} in access exclusive mode`.execute(transaction).catch((error: unknown) => {
    if (!isBusy(error)) throw error;
  });
  await sql`rollback to savepoint before_locks`.execute(transaction);
}

function isBusy(error: unknown): boolean {
  return error instanceof DatabaseError && error.condition === 'busy';
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

/** SQL types, by column name, of the rows that `givenRows` passes to a statement. */
export type GivenColumns = Readonly<Record<string, 'text' | 'bigint' | 'double precision'>>;

/**
 * Builds an SQL table expression with the name `given` and these rows, for use after FROM. Databases limit the number
 * of parameters. So the rows are one JSON parameter, and a statement can use thousands of rows. Texts must not contain
 * NUL, which PostgreSQL cannot store.
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
 * Deletes the rows that a query finds. The DELETE selects them by their position in the table (`ctid` or `rowid`). If
 * it compared other columns, PostgreSQL could read the whole table.
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
