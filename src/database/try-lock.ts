import { sql, type Transaction } from './kysely.js';
import { isPostgres } from './is-postgres.js';

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

/** The same, and waits for it, at most as long as a statement may take. It comes before whatever others wait for. */
export async function waitForLock<Tables>(transaction: Transaction<Tables>, name: string): Promise<void> {
  if (!isPostgres(transaction)) return;
  await sql`select pg_advisory_xact_lock(hashtextextended(${name}, 0))`.execute(transaction);
}
