import { DatabaseError, hostAndDatabaseOf, databaseConditions } from './database-error.js';
import {
  Kysely,
  DEFAULT_MIGRATION_TABLE,
  type Migration,
  Migrator,
  sql,
  DEFAULT_MIGRATION_LOCK_TABLE,
} from './kysely.js';
import { openPostgres, type PoolOptions, requireSessions } from './postgres.js';
import { isMissing, openSqlite } from './sqlite.js';
import { isPostgres, limitLockWait } from './dialects.js';
import pg from 'pg';

/** The location of a database, and its connection pool. */
export interface DatabaseOptions {
  /** `sqlite:PATH`, `sqlite::memory:` (its data is lost when the process ends) or `postgres://…`. */
  readonly url: string;
  readonly pool?: PoolOptions | undefined;
}

/** Default pool options. */
export const defaultPool: PoolOptions = { maxConnections: 10, connectTimeoutSeconds: 5, statementTimeoutSeconds: 10 };

/**
 * Opens a database. Creates a missing SQLite file. Connects to PostgreSQL at the first query, which rejects with a
 * DatabaseError if the connection fails. The caller closes the database with `destroy()`.
 * @throws DatabaseError for an unsupported URL, or an SQLite file that cannot be opened
 */
export function openDatabase<Tables>({ url, pool = defaultPool }: DatabaseOptions): Kysely<Tables> {
  // Error messages contain only the URL's scheme, because the rest can contain a password.
  const [, scheme = '', rest = ''] = /^([a-z0-9+]*:)?(.*)$/is.exec(url) ?? [];
  if (scheme === 'sqlite:' && rest !== '') return new Kysely<Tables>({ dialect: openSqlite(rest) });
  if (scheme === 'postgres:' || scheme === 'postgresql:') {
    return new Kysely<Tables>({ dialect: openPostgres(url, pool) });
  }
  const found = scheme === 'sqlite:' || scheme === '' ? '' : `; the configured URL begins with ${scheme}`;
  throw new DatabaseError(
    `A database URL must be sqlite:PATH, sqlite::memory: or postgres://USER@HOST:PORT/DATABASE${found}.`,
  );
}

/** SQLSTATE insufficient_privilege. */
const insufficientPrivilege = '42501';

/** Migrations by name. They run in the order of their names. A released migration never changes. */
export type Migrations = Readonly<Record<string, Migration>>;

/**
 * Lock timeout of a migration. While a migration waits for the lock of a table, requests queue behind the migration. So
 * this timeout is shorter than the default statement timeout of requests.
 */
const lockWaitMilliseconds = 5000;

/**
 * Checks that these migrations can update the database. Changes nothing.
 * @param missing the error to throw for a database without migrations; null accepts a new database
 * @throws DatabaseError if the database has an unknown migration or an encoding other than UTF-8
 */
async function requireKnown<Tables>(
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
      `The database belongs to another part of merchant-gateway (it has migration "${unknown}") and was not changed: give each part a separate database.`,
    );
  }
  if (unknown !== undefined) {
    throw new DatabaseError(
      `The database was written by a newer version (it has migration "${unknown}"): start that version, or restore an older backup.`,
    );
  }
}

/**
 * Runs the migrations that the database lacks, in one transaction.
 * @throws DatabaseError if a migration fails, and for the reasons of `requireKnown`
 */
export async function migrate<Tables>(
  database: Kysely<Tables>,
  migrations: Migrations,
  missing: DatabaseError | null = null,
): Promise<void> {
  await requireKnown(database, migrations, missing);
  const migrator = new Migrator({
    db: database,
    provider: { getMigrations: () => Promise.resolve(withLockTimeout(migrations)) },
  });
  const { error, results } = await migrator.migrateToLatest();
  if (error === undefined) return;
  const failed = results?.find((result) => result.status === 'Error')?.migrationName;
  const step = failed === undefined ? '' : ` at "${failed}"`;
  const reason = error instanceof Error ? error.message.replace(/\.$/, '') : 'unknown reason';
  const isDenied = error instanceof pg.DatabaseError && error.code === insufficientPrivilege;
  const next = isDenied
    ? ' Run "merchant-gateway database migrate" with the URL of the user that owns the tables.'
    : '';
  throw new DatabaseError(`The database migration failed${step} and changed nothing: ${reason}.${next}`, {
    cause: error,
  });
}

/** Adds a lock timeout to each migration. It does not limit the wait for another process that runs migrations. */
function withLockTimeout(migrations: Migrations): Record<string, Migration> {
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

/**
 * Rejects a PostgreSQL database whose encoding is not UTF-8: other encodings cannot store every text, for example an
 * emoji in a name. SQLite always uses Unicode.
 * @throws DatabaseError
 */
async function requireUtf8<Tables>(database: Kysely<Tables>): Promise<void> {
  if (!isPostgres(database)) return;
  const { rows } = await sql<{ encoding: string }>`select current_setting('server_encoding') as encoding`.execute(
    database,
  );
  const encoding = rows[0]?.encoding ?? 'unknown';
  if (encoding === 'UTF8') return;
  throw new DatabaseError(
    `The PostgreSQL database was not changed, because its encoding ${encoding} cannot store every character. Create another database with "create database NAME encoding 'UTF8' template template0", and move the data to it.`,
  );
}

/** Statement timeout of a migration and of the wait for another process's migration. A large index takes minutes. */
const migrationTimeoutSeconds = 3600;

/** Options of a database that is migrated when it is opened. */
export interface MigratedOptions extends DatabaseOptions {
  /**
   * The part of the program whose database must already exist; if undefined, a missing database is created. With a
   * wrong URL, an error is better than an empty registry, which would reject every key.
   */
  readonly existingOf?: 'registry' | 'services' | undefined;
}

/**
 * Opens and migrates a database. PostgreSQL is migrated over separate connections: on the normal connections, the
 * statement timeout would abort the migration of a large table at each start.
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
 * Checks a database without migrating it. Creates a missing SQLite file if `existingOf` is undefined.
 * @throws DatabaseError if the program could not start with this database
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

/**
 * Returns the error to throw for a database without tables; null if the program is allowed to create them.
 * @throws DatabaseError if an SQLite file is missing but must exist
 */
function requireFile(options: MigratedOptions): DatabaseError | null {
  const missing = missingDatabase(options);
  const file = sqliteFileOf(options.url);
  if (missing !== null && file !== null && isMissing(file)) throw missing;
  return missing;
}

/** Returns the error for a missing or empty database; null if the program may create it. */
function missingDatabase({ url, existingOf }: MigratedOptions): DatabaseError | null {
  if (existingOf === undefined || url === 'sqlite::memory:') return null;
  const file = sqliteFileOf(url);
  const what =
    file === null
      ? `The database ${hostAndDatabaseOf(url)} has no tables of the ${existingOf}`
      : `There is no database ${file}`;
  return new DatabaseError(
    `${what} (${existingOf}.database.url): for a new installation, pass --create (Helm chart: ${existingOf}.createDatabase); otherwise, correct the URL. Without --create, the program creates no database, because a wrong URL would lead to an empty one.`,
  );
}

function sqliteFileOf(url: string): string | null {
  const [, file] = /^sqlite:(.+)$/s.exec(url) ?? [];
  return file === undefined || file === ':memory:' ? null : file;
}

/** How long a test write's success is reused. Each write flushes the disk, and any client can request `/readyz`. */
const writtenMilliseconds = 1000;
/**
 * Maximum wait of `WriteProbe` for a locked SQLite file. It is shorter than the timeout of the Kubernetes readiness
 * probe in the Helm chart (3 seconds). Requests wait longer, so their writes can succeed although `WriteProbe` failed.
 */
const lockedMilliseconds = 1000;

/** Checks whether a migrated database is writable. Concurrent callers share one check. */
export class WriteProbe {
  readonly #database: Kysely<unknown>;
  #running: Promise<string | null> | null = null;
  #writtenAt = -Infinity;

  constructor(database: unknown) {
    this.#database = database as Kysely<unknown>;
  }

  /** Returns why the database is not writable, in words that name no host or user; null if it is writable. */
  async problem(): Promise<string | null> {
    this.#running ??= this.#try().finally(() => (this.#running = null));
    return isPostgres(this.#database) ? this.#running : orBusy(this.#running);
  }

  async #try(): Promise<string | null> {
    try {
      if (isPostgres(this.#database)) await changeNothing(this.#database);
      else if (performance.now() - this.#writtenAt < writtenMilliseconds) await sql`select 1`.execute(this.#database);
      else {
        await write(this.#database);
        this.#writtenAt = performance.now();
      }
      return null;
    } catch (error) {
      // A read-only server rejects the update before it checks privileges, so this error proves a writable server.
      if (error instanceof pg.DatabaseError && error.code === insufficientPrivilege) return null;
      return databaseConditions[error instanceof DatabaseError ? error.condition : 'away'];
    }
  }
}

/**
 * Runs an update that changes no row, to find out whether PostgreSQL accepts writes: after a failover, a standby
 * accepts only reads. If a standby rejects the update, the connection is closed, so that a new one can reach the
 * primary. No migration locks this table, so the update does not wait for migrations.
 */
async function changeNothing(database: Kysely<unknown>): Promise<void> {
  await sql`update ${sql.table(DEFAULT_MIGRATION_TABLE)} set name = name where false`.execute(database);
}

/** Inserts and deletes a row: only a write shows that the disk has space. Normally, only migrations use this table. */
async function write(database: Kysely<unknown>): Promise<void> {
  const table = sql.table(DEFAULT_MIGRATION_LOCK_TABLE);
  await database.transaction().execute(async (transaction) => {
    await sql`insert into ${table} (id, is_locked) values ('write probe', 0)`.execute(transaction);
    await sql`delete from ${table} where id = 'write probe'`.execute(transaction);
  });
}

/** Returns the result, or the `busy` message after `lockedMilliseconds`. */
async function orBusy(result: Promise<string | null>): Promise<string | null> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<string>((resolve) => {
    timer = setTimeout(() => {
      resolve(databaseConditions.busy);
    }, lockedMilliseconds);
  });
  return Promise.race([result, late]).finally(() => {
    clearTimeout(timer);
  });
}
