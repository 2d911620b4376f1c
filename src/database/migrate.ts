import { DEFAULT_MIGRATION_TABLE, Migrator, sql, type Kysely, type Migration } from './kysely.js';
import { DatabaseError } from './database-error.js';
import { limitLockWait } from './limit-lock-wait.js';
import { requireUtf8 } from './require-utf8.js';

/** Migrations by name; they run in the order of their names and are never changed once released. */
export type Migrations = Readonly<Record<string, Migration>>;

/** Whoever asks for what a migration waits to lock waits behind it: shorter than a request waits for its statement. */
const lockWaitMilliseconds = 5000;

/**
 * Makes sure that a database can be brought up to date with these migrations, and changes nothing.
 * @param missing thrown where it has seen none; null: it is a new one
 * @throws DatabaseError where it has seen one that is not among these, or cannot keep every text
 */
export async function requireKnown<Tables>(
  database: Kysely<Tables>,
  migrations: Migrations,
  missing: DatabaseError | null,
): Promise<void> {
  await requireUtf8(database);
  const applied = await appliedMigrations(database);
  if (missing !== null && applied.length === 0) throw missing;
  const unknown = applied.find((name) => !Object.hasOwn(migrations, name));
  if (unknown !== undefined && !applied.some((name) => Object.hasOwn(migrations, name))) {
    throw new DatabaseError(
      `The database is another part's (it has "${unknown}"), and was left as it is: give each part a database of its own.`,
    );
  }
  if (unknown !== undefined) {
    throw new DatabaseError(
      `The database was written by a newer version (it has "${unknown}"): start that version, or restore an older backup.`,
    );
  }
}

/**
 * Runs the migrations that this database has not seen, in one transaction.
 * @throws DatabaseError where one fails, and as `requireKnown`
 */
export async function migrate<Tables>(
  database: Kysely<Tables>,
  migrations: Migrations,
  missing: DatabaseError | null = null,
): Promise<void> {
  await requireKnown(database, migrations, missing);
  const migrator = new Migrator({
    db: database,
    provider: { getMigrations: () => Promise.resolve(limited(migrations)) },
  });
  const { error, results } = await migrator.migrateToLatest();
  if (error === undefined) return;
  const failed = results?.find((result) => result.status === 'Error')?.migrationName;
  const step = failed === undefined ? '' : ` at "${failed}"`;
  const reason = error instanceof Error ? error.message.replace(/\.$/, '') : 'for an unknown reason';
  throw new DatabaseError(`The database could not be brought up to date${step} and was left as it was: ${reason}.`, {
    cause: error,
  });
}

/** Not the wait for another process's migrations, which comes before them. */
function limited(migrations: Migrations): Record<string, Migration> {
  const each = Object.entries(migrations).map(([name, migration]): [string, Migration] => [
    name,
    {
      up: async (transaction) => {
        await limitLockWait(transaction, lockWaitMilliseconds);
        await migration.up(transaction);
      },
    },
  ]);
  return Object.fromEntries(each);
}

async function appliedMigrations<Tables>(database: Kysely<Tables>): Promise<string[]> {
  const tables = await database.introspection.getTables({ withInternalKyselyTables: true });
  if (!tables.some((table) => table.name === DEFAULT_MIGRATION_TABLE)) return [];
  const { rows } = await sql<{ name: string }>`select name from ${sql.table(DEFAULT_MIGRATION_TABLE)}`.execute(
    database,
  );
  return rows.map((row) => row.name);
}
