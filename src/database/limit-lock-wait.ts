import { sql, type Kysely } from './kysely.js';
import { isPostgres } from './is-postgres.js';

/**
 * Lets a transaction wait for each lock for so long and no longer: then its statement fails with a DatabaseError. On SQLite
 * a transaction that writes has the whole database for itself, so there is nothing left to wait for.
 */
export async function limitLockWait<Tables>(transaction: Kysely<Tables>, milliseconds: number): Promise<void> {
  if (!isPostgres(transaction)) return;
  await sql`select set_config('lock_timeout', ${String(milliseconds)}, true)`.execute(transaction);
}
