import { sql, type Kysely } from './kysely.js';
import { isPostgres } from './is-postgres.js';

/**
 * Waits for a lock that one transaction has at a time, and that ends with it, also when its process dies: what follows sees whatever
 * the one before it committed. On SQLite a transaction that writes has the whole database for itself, so there is nothing left to lock.
 */
export async function waitForLock<Tables>(transaction: Kysely<Tables>, name: string): Promise<void> {
  if (!isPostgres(transaction)) return;
  await sql`select pg_advisory_xact_lock(hashtextextended(${name}, 0))`.execute(transaction);
}
