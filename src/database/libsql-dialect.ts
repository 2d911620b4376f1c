import {
  CompiledQuery,
  SqliteAdapter,
  SqliteDialect,
  SqliteDriver,
  type DatabaseConnection,
  type SqliteDatabase,
} from 'kysely';
import Database from 'libsql';
import { DatabaseError } from './database-error.js';

/** SQLite for Kysely, on one libsql connection; transactions on it wait for each other. */
export class LibsqlDialect extends SqliteDialect {
  readonly #database: SqliteDatabase;

  constructor(connection: Database.Database) {
    const database = bindStrictly(connection);
    super({ database });
    this.#database = database;
  }

  override createDriver() {
    return new ImmediateDriver({ database: this.#database });
  }

  override createAdapter() {
    return new TransactionalSchemaAdapter();
  }
}

/** A deferred transaction that reads first can fail half-way when another process writes; an immediate one waits. */
class ImmediateDriver extends SqliteDriver {
  override async beginTransaction(connection: DatabaseConnection): Promise<void> {
    await connection.executeQuery(CompiledQuery.raw('begin immediate'));
  }
}

/** SQLite can undo a CREATE TABLE, so a migration that fails half-way leaves nothing behind. */
class TransactionalSchemaAdapter extends SqliteAdapter {
  override get supportsTransactionalDdl(): boolean {
    return true;
  }
}

function bindStrictly(connection: Database.Database): SqliteDatabase {
  return {
    close: () => {
      // libsql leaves this to the garbage collection of its statements; until then the file alone is not the database.
      connection.exec('pragma wal_checkpoint(truncate)');
      connection.close();
    },
    prepare: (sql) => {
      const statement = connection.prepare(sql);
      return {
        reader: statement.reader,
        all: (parameters) => sayingWhy(() => statement.all(parameters.map(bindable))),
        run: (parameters) => sayingWhy(() => statement.run(parameters.map(bindable))),
        iterate: (parameters) => statement.iterate(parameters.map(bindable)),
      };
    },
  };
}

const passing = /^SQLITE_(?:BUSY|LOCKED|FULL|IOERR|READONLY|CANTOPEN)/;

/** What an operator can mend is a DatabaseError; what is wrong with a statement stays as it is. */
function sayingWhy<Result>(act: () => Result): Result {
  try {
    return act();
  } catch (error) {
    if (!(error instanceof Database.SqliteError) || !passing.test(error.code)) throw error;
    const message = `The SQLite database cannot be used (${error.code}): check its disk, and that no other program holds it.`;
    throw new DatabaseError(message, { cause: error });
  }
}

/**
 * libsql binds every number as a REAL, cuts a text at its first NUL and aborts the whole process on a boolean: integers
 * go in as integers, and whatever would not come back as it went in is refused here.
 */
function bindable(value: unknown): unknown {
  if (value === null || typeof value === 'bigint' || value instanceof Uint8Array) return value;
  if (typeof value === 'number' && Number.isSafeInteger(value)) return BigInt(value);
  if (typeof value === 'number' && !Number.isInteger(value) && Number.isFinite(value)) return value;
  if (typeof value === 'string' && !unstorable.test(value)) return value;
  throw new TypeError(`a ${typeof value} of this value cannot be stored without changing it`);
}

const unstorable = /\0|\p{Surrogate}/u;
