import { DEFAULT_MIGRATION_LOCK_TABLE, DEFAULT_MIGRATION_TABLE, sql, type Kysely } from './kysely.js';
import pg from 'pg';
import { DatabaseError, databaseConditions } from './database-error.js';
import { isPostgres } from './is-postgres.js';

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
