import type { Kysely } from './kysely.js';
import { isPostgres } from './is-postgres.js';
import { migrate, type Migrations } from './migrate.js';
import { defaultPool, openDatabase, type DatabaseOptions } from './open-database.js';
import { requireSessions } from './own-server-process.js';

/** An index of a large table takes minutes; who waits for another process's migration waits for as long. */
const migrationTimeoutSeconds = 3600;

/**
 * Opens a database and brings it up to date. On PostgreSQL that has connections of its own: what bounds the statements of
 * requests would stop a migration of a large table halfway, and so at each start.
 * @throws DatabaseError
 */
export async function openMigrated<Tables>(options: DatabaseOptions, migrations: Migrations): Promise<Kysely<Tables>> {
  const { pool = defaultPool } = options;
  const patient = openDatabase<Tables>({
    ...options,
    pool: { ...pool, statementTimeoutSeconds: migrationTimeoutSeconds },
  });
  try {
    if (isPostgres(patient)) await requireSessions(options.url, pool);
    await migrate(patient, migrations);
  } catch (error) {
    await patient.destroy();
    throw error;
  }
  if (!isPostgres(patient)) return patient;
  await patient.destroy();
  return openDatabase<Tables>(options);
}
