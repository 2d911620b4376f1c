import { DEFAULT_MIGRATION_TABLE, sql, type Kysely } from 'kysely';
import pg from 'pg';
import { isPostgres } from './is-postgres.js';

/** Told only by a server that can be written to: the user may not write this table, and need not. */
const insufficientPrivilege = '42501';

/**
 * Whether a migrated database answers and can be written to. A PostgreSQL that a failover made a standby answers as before and
 * writes nothing: the statement changes no row, and is refused there, which ends the connection, so that a new one can lead elsewhere.
 * It is about a table that no migration locks.
 */
export async function isWritable<Tables>(database: Kysely<Tables>): Promise<boolean> {
  const table = sql.table(DEFAULT_MIGRATION_TABLE);
  try {
    await (isPostgres(database) ? sql`update ${table} set name = name where false` : sql`select 1`).execute(database);
    return true;
  } catch (error) {
    return error instanceof pg.DatabaseError && error.code === insufficientPrivilege;
  }
}
