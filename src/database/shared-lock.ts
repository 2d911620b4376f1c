import { sql, type Kysely } from './kysely.js';
import { isPostgres } from './is-postgres.js';

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
