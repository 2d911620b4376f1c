import {
  CompiledQuery,
  SqliteAdapter,
  SqliteDialect,
  SqliteDriver,
  type DatabaseConnection,
  type SqliteDatabase,
} from 'kysely';
import type Database from 'libsql';

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
        all: (parameters) => statement.all(parameters.map(bindable)),
        run: (parameters) => statement.run(parameters.map(bindable)),
        iterate: (parameters) => statement.iterate(parameters.map(bindable)),
      };
    },
  };
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
