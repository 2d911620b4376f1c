import { DEFAULT_MIGRATION_TABLE, sql, type Kysely } from 'kysely';
import { isPostgres } from './is-postgres.js';

/**
 * Whether a migrated database answers and can be written to. A PostgreSQL that a failover made a standby answers as before and
 * writes nothing: the statement changes no row, and is refused there, which ends the connection, so that a new one can lead elsewhere.
 */
export async function isWritable<Tables>(database: Kysely<Tables>): Promise<boolean> {
  const table = sql.table(DEFAULT_MIGRATION_TABLE);
  try {
    await (isPostgres(database) ? sql`update ${table} set name = name where false` : sql`select 1`).execute(database);
    return true;
  } catch {
    return false;
  }
}
