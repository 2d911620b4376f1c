import { DEFAULT_MIGRATION_TABLE, sql, type Kysely } from 'kysely';
import { isPostgres } from './is-postgres.js';

/**
 * Asks whether a migrated database answers and can be written to. A PostgreSQL that a failover made a standby answers as before and
 * writes nothing: the statement changes no row, and is refused there, which ends the connection, so that a new one can lead elsewhere.
 * @throws DatabaseError where it does not
 */
export async function requireWritable<Tables>(database: Kysely<Tables>): Promise<void> {
  const table = sql.table(DEFAULT_MIGRATION_TABLE);
  await (isPostgres(database) ? sql`update ${table} set name = name where false` : sql`select 1`).execute(database);
}
