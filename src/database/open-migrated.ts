import { existsSync } from 'node:fs';
import { DatabaseError } from './database-error.js';
import type { Kysely } from './kysely.js';
import { isPostgres } from './is-postgres.js';
import { migrate, requireKnown, type Migrations } from './migrate.js';
import { defaultPool, openDatabase, type DatabaseOptions } from './open-database.js';
import { requireSessions } from './own-server-process.js';
import { placeIn } from './postgres-failure.js';

/** An index of a large table takes minutes; who waits for another process's migration waits for as long. */
const migrationTimeoutSeconds = 3600;

/** A database that a part brings up to date when it opens it. */
export interface MigratedOptions extends DatabaseOptions {
  /**
   * Whose it is, where one that is not there, or has no tables, is refused: it is perhaps another one than was meant, and an empty
   * registry knows no key. Left out: it is made.
   */
  readonly existingOf?: 'registry' | 'services' | undefined;
}

/**
 * Opens a database and brings it up to date. On PostgreSQL that has connections of its own: what bounds the statements of
 * requests would stop a migration of a large table halfway, and so at each start.
 * @throws DatabaseError
 */
export async function openMigrated<Tables>(options: MigratedOptions, migrations: Migrations): Promise<Kysely<Tables>> {
  const { pool = defaultPool, url } = options;
  const missing = requireFile(options);
  const patient = openDatabase<Tables>({
    ...options,
    pool: { ...pool, statementTimeoutSeconds: migrationTimeoutSeconds },
  });
  try {
    if (isPostgres(patient)) await requireSessions(url, pool);
    await migrate(patient, migrations, missing);
  } catch (error) {
    await patient.destroy();
    throw error;
  }
  if (!isPostgres(patient)) return patient;
  await patient.destroy();
  return openDatabase<Tables>(options);
}

/**
 * Connects to a database that a part could start with, and changes nothing.
 * @throws DatabaseError where it could not
 */
export async function checkDatabase(options: MigratedOptions, migrations: Migrations): Promise<void> {
  const missing = requireFile(options);
  const database = openDatabase<unknown>(options);
  try {
    if (isPostgres(database)) await requireSessions(options.url, options.pool ?? defaultPool);
    await requireKnown(database, migrations, missing);
  } finally {
    await database.destroy();
  }
}

/** What is said of a database that has no tables; null where they are made. @throws DatabaseError where its file has to be there */
function requireFile(options: MigratedOptions): DatabaseError | null {
  const missing = missingDatabase(options);
  const file = sqliteFileOf(options.url);
  if (missing !== null && file !== null && !existsSync(file)) throw missing;
  return missing;
}

/** What is said of a database that is not there, or is empty; null where it is made. */
function missingDatabase({ url, existingOf }: MigratedOptions): DatabaseError | null {
  if (existingOf === undefined || url === 'sqlite::memory:') return null;
  const file = sqliteFileOf(url);
  const what =
    file === null ? `The database ${placeIn(url)} has no tables of the ${existingOf}` : `There is no database ${file}`;
  return new DatabaseError(
    `${what} (${existingOf}.database.url): give --create for a new installation, or correct the option; an empty database may hide that another one was meant.`,
  );
}

function sqliteFileOf(url: string): string | null {
  const [, file] = /^sqlite:(.+)$/s.exec(url) ?? [];
  return file === undefined || file === ':memory:' ? null : file;
}
