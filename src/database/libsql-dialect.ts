import { setTimeout as pause } from 'node:timers/promises';
import type Database from 'libsql';
import { DatabaseError } from './database-error.js';
import {
  type CompiledQuery,
  type DatabaseConnection,
  type Dialect,
  type Driver,
  type Kysely,
  type QueryResult,
  RawNode,
  SelectQueryNode,
  SqliteAdapter,
  SqliteIntrospector,
  SqliteQueryCompiler,
} from './kysely.js';
import { LibsqlStatements, withDatabaseErrors } from './libsql-statements.js';

/** How long a write retries while another program locks the file. The time starts when the write joins the queue. */
const writeTimeoutMilliseconds = 5000;
const retryMilliseconds = 20;

/** The Kysely dialect for SQLite. It has one libsql connection, so transactions wait for each other. */
export class LibsqlDialect implements Dialect {
  readonly #database: Database.Database;

  constructor(database: Database.Database) {
    this.#database = database;
  }

  createDriver() {
    return new LibsqlDriver(this.#database);
  }

  createAdapter() {
    return new TransactionalSchemaAdapter();
  }

  createIntrospector(database: Kysely<unknown>) {
    return new SqliteIntrospector(database);
  }

  createQueryCompiler() {
    return new SqliteQueryCompiler();
  }
}

/** Lets Kysely run migrations in a transaction: SQLite can roll back a CREATE TABLE, so a failure changes nothing. */
class TransactionalSchemaAdapter extends SqliteAdapter {
  override get supportsTransactionalDdl(): boolean {
    return true;
  }
}

/** Begins a write transaction. After its end, the caller must call the returned function to let the next one begin. */
type Begin = () => Promise<() => void>;

class LibsqlDriver implements Driver {
  readonly #database: Database.Database;
  readonly #statements: LibsqlStatements;
  readonly #turns = new Mutex();
  readonly #writers = new Mutex();

  constructor(database: Database.Database) {
    this.#database = database;
    this.#statements = new LibsqlStatements(database);
  }

  init(): Promise<void> {
    return Promise.resolve();
  }

  acquireConnection(): Promise<DatabaseConnection> {
    return Promise.resolve(new LibsqlConnection(this.#database, this.#statements, this.#turns, this.#begin));
  }

  beginTransaction(connection: LibsqlConnection): Promise<void> {
    return connection.begin();
  }

  commitTransaction(connection: LibsqlConnection): Promise<void> {
    return connection.commit();
  }

  rollbackTransaction(connection: LibsqlConnection): Promise<void> {
    return connection.rollback();
  }

  releaseConnection(): Promise<void> {
    return Promise.resolve();
  }

  destroy(): Promise<void> {
    try {
      // Merges the WAL file into the database, which libsql otherwise does only after a garbage collection.
      this.#database.exec('pragma wal_checkpoint(truncate)');
    } catch {
      // The disk could be full. Committed data then stays in the WAL file.
    } finally {
      this.#statements.close();
      this.#database.close();
    }
    return Promise.resolve();
  }

  /**
   * Begins a write transaction. While another program locks the file, retries until a deadline. Reads and the event
   * loop run between the attempts. Only the first writer in the queue retries, because its deadline is the earliest.
   */
  readonly #begin: Begin = async () => {
    const deadline = performance.now() + writeTimeoutMilliseconds;
    const endWriting = await this.#writers.take();
    for (;;) {
      const endTurn = await this.#turns.take();
      try {
        // Use `exec`: a prepared statement that fails on a locked file blocks COMMIT until it is garbage-collected.
        withDatabaseErrors(() => {
          this.#database.exec('begin immediate');
        });
        return () => {
          endTurn();
          endWriting();
        };
      } catch (error) {
        endTurn();
        const mayPass = error instanceof DatabaseError && error.condition === 'busy' && performance.now() < deadline;
        if (!mayPass) {
          endWriting();
          throw error;
        }
      }
      await pause(retryMilliseconds);
    }
  };
}

/** Gives one query or transaction access to the only connection. */
class LibsqlConnection implements DatabaseConnection {
  readonly #database: Database.Database;
  readonly #statements: LibsqlStatements;
  readonly #turns: Mutex;
  readonly #begin: Begin;
  /** Releases the connection to the next query or transaction; null outside a transaction. */
  #endTurn: (() => void) | null = null;
  /** The error that made SQLite roll back the transaction, such as a full disk; null if there was none. */
  #failure: Error | null = null;

  constructor(database: Database.Database, statements: LibsqlStatements, turns: Mutex, begin: Begin) {
    this.#database = database;
    this.#statements = statements;
    this.#turns = turns;
    this.#begin = begin;
  }

  async begin(): Promise<void> {
    this.#endTurn = await this.#begin();
  }

  commit(): Promise<void> {
    return this.#inTransaction(() => {
      this.#database.exec('commit');
      this.#end();
    });
  }

  rollback(): Promise<void> {
    try {
      if (this.#isInTransaction) this.#database.exec('rollback');
      return Promise.resolve();
    } finally {
      this.#end();
    }
  }

  async executeQuery<Row>(query: CompiledQuery): Promise<QueryResult<Row>> {
    if (this.#endTurn !== null) return this.#inTransaction(() => this.#statements.run<Row>(query));
    return mayWrite(query) ? this.#inOwnTransaction<Row>(query) : this.#read<Row>(query);
  }

  /** Always throws, because this program does not stream results. */
  streamQuery(): never {
    throw new Error('SQLite queries cannot be streamed');
  }

  async #read<Row>(query: CompiledQuery): Promise<QueryResult<Row>> {
    const endTurn = await this.#turns.take();
    try {
      return this.#statements.run<Row>(query);
    } finally {
      endTurn();
    }
  }

  async #inOwnTransaction<Row>(query: CompiledQuery): Promise<QueryResult<Row>> {
    await this.begin();
    try {
      const result = await this.executeQuery<Row>(query);
      await this.commit();
      return result;
    } catch (error) {
      await this.rollback();
      throw error;
    }
  }

  // eslint-disable-next-line @typescript-eslint/require-await -- async turns an exception into a rejection
  async #inTransaction<Result>(act: () => Result): Promise<Result> {
    // SQLite has already rolled back, so another statement would run outside the transaction.
    if (this.#failure !== null) throw this.#failure;
    try {
      return withDatabaseErrors(act);
    } catch (error) {
      if (!this.#isInTransaction) this.#failure = error as Error;
      throw error;
    }
  }

  get #isInTransaction(): boolean {
    // libsql aborts the process if this is read after the database was closed.
    return this.#database.open && this.#database.inTransaction;
  }

  #end(): void {
    this.#endTurn?.();
    this.#endTurn = null;
    this.#failure = null;
  }
}

/**
 * True for a statement that Kysely's query builder built, except SELECT. Such a statement gets its own transaction. A
 * raw statement gets none, because some pragmas have no effect in a transaction.
 */
function mayWrite({ query }: CompiledQuery): boolean {
  return !SelectQueryNode.is(query) && !RawNode.is(query);
}

/** A mutex that serves waiting callers in order. */
class Mutex {
  #last: Promise<void> = Promise.resolve();

  /** Resolves when the caller has the mutex. The returned function releases it. */
  async take(): Promise<() => void> {
    const before = this.#last;
    let end = (): void => undefined;
    this.#last = new Promise((resolve) => (end = resolve));
    await before;
    return end;
  }
}
