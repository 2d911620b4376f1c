import { DatabaseError, placeIn, databaseConditions } from './database-error.js';
import {
  Kysely,
  DEFAULT_MIGRATION_TABLE,
  type Migration,
  Migrator,
  sql,
  DEFAULT_MIGRATION_LOCK_TABLE,
} from './kysely.js';
import { openPostgres, type PoolOptions, requireSessions } from './postgres.js';
import { openSqlite } from './sqlite.js';
import { isPostgres, limitLockWait } from './dialects.js';
import { existsSync } from 'node:fs';
import pg from 'pg';

/** Where a database is. */
export interface DatabaseOptions {
  /** `sqlite:PATH`, `sqlite::memory:` for one that ends with the process, or `postgres://…`. */
  readonly url: string;
  readonly pool?: PoolOptions | undefined;
}

/** How they are used where nobody says otherwise. */
export const defaultPool: PoolOptions = { maxConnections: 10, connectTimeoutSeconds: 5, statementTimeoutSeconds: 10 };

/**
 * Opens a database. An SQLite file is created where there is none; PostgreSQL is connected to at the first query, and
 * that query then tells of a failure, as a DatabaseError. Whoever opened it ends it with `destroy()`.
 * @throws DatabaseError
 */
export function openDatabase<Tables>({ url, pool = defaultPool }: DatabaseOptions): Kysely<Tables> {
  // Only a scheme is ever quoted from a URL: the rest may hold a password.
  const [, scheme = '', rest = ''] = /^([a-z0-9+]*:)?(.*)$/is.exec(url) ?? [];
  if (scheme === 'sqlite:' && rest !== '') return new Kysely<Tables>({ dialect: openSqlite(rest) });
  if (scheme === 'postgres:' || scheme === 'postgresql:') {
    return new Kysely<Tables>({ dialect: openPostgres(url, pool) });
  }
  const found = scheme === 'sqlite:' || scheme === '' ? '' : `; this one begins with ${scheme}`;
  throw new DatabaseError(
    `A database URL must be sqlite:PATH, sqlite::memory: or postgres://USER@HOST:PORT/DATABASE${found}.`,
  );
}

/** Migrations by name; they run in the order of their names and are never changed once released. */
export type Migrations = Readonly<Record<string, Migration>>;

/** Whoever asks for what a migration waits to lock waits behind it: shorter than a request waits for its statement. */
const lockWaitMilliseconds = 5000;

/**
 * Makes sure that a database can be brought up to date with these migrations, and changes nothing.
 * @param missing thrown where it has seen none; null: it is a new one
 * @throws DatabaseError where it has seen one that is not among these, or cannot keep every text
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

/**
 * Makes sure that every text can be kept: PostgreSQL has databases of other encodings, in which a name with an emoji fails.
 * SQLite has none but Unicode.
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
    `The PostgreSQL database has the encoding ${encoding}, in which not every text can be kept, and was left as it is: make one with "create database NAME encoding 'UTF8' template template0", and move to it what this one has.`,
  );
}

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

/** Told only by a server that can be written to: the user may not write this table, and need not. */
const insufficientPrivilege = '42501';
/** For so long a write to SQLite counts: each one is a flush to the disk, and whoever asks needs no token. */
const writtenMilliseconds = 1000;
/** Less than orchestrators wait; a write of a request waits for longer, and may still succeed. */
const lockedMilliseconds = 1000;

/** Finds out whether a migrated database can be written to, for everyone who asks meanwhile at once. */
export class WriteProbe {
  readonly #database: Kysely<unknown>;
  #underWay: Promise<string | null> | null = null;
  #writtenAt = -Infinity;

  constructor(database: unknown) {
    this.#database = database as Kysely<unknown>;
  }

  /** Why it cannot be written to, in words that name neither place nor user; null where it can. */
  async problem(): Promise<string | null> {
    this.#underWay ??= this.#try().finally(() => (this.#underWay = null));
    return isPostgres(this.#database) ? this.#underWay : orLocked(this.#underWay);
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
      if (error instanceof pg.DatabaseError && error.code === insufficientPrivilege) return null;
      return databaseConditions[error instanceof DatabaseError ? error.condition : 'away'];
    }
  }
}

/**
 * A PostgreSQL that a failover made a standby answers as before and writes nothing: the statement changes no row, and is refused
 * there, which ends the connection, so that a new one can lead elsewhere. It is about a table that no migration locks.
 */
async function changeNothing(database: Kysely<unknown>): Promise<void> {
  await sql`update ${sql.table(DEFAULT_MIGRATION_TABLE)} set name = name where false`.execute(database);
}

/** Only a page that reaches the disk shows that there is room. On SQLite nothing else uses this table. */
async function write(database: Kysely<unknown>): Promise<void> {
  const table = sql.table(DEFAULT_MIGRATION_LOCK_TABLE);
  await database.transaction().execute(async (transaction) => {
    await sql`insert into ${table} (id, is_locked) values ('write probe', 0)`.execute(transaction);
    await sql`delete from ${table} where id = 'write probe'`.execute(transaction);
  });
}

/** The result, or that the database is busy where there is none in time. */
async function orLocked(result: Promise<string | null>): Promise<string | null> {
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
