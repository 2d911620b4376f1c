import { setTimeout as pause } from 'node:timers/promises';
import Database from 'libsql';
import { type DatabaseCondition, DatabaseError } from './database-error.js';
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

/** How long a write waits, for its turn and for the lock of another program together. */
const patienceMilliseconds = 5000;
const retryMilliseconds = 20;

/** SQLite for Kysely, on one libsql connection; transactions on it wait for each other. */
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

/** SQLite can undo a CREATE TABLE, so a migration that fails half-way leaves nothing behind. */
class TransactionalSchemaAdapter extends SqliteAdapter {
  override get supportsTransactionalDdl(): boolean {
    return true;
  }
}

/** Begins a transaction that writes; the result ends its turn. */
type Begin = () => Promise<() => void>;

class LibsqlDriver implements Driver {
  readonly #database: Database.Database;
  readonly #turns = new Turns();
  readonly #writers = new Turns();

  constructor(database: Database.Database) {
    this.#database = database;
  }

  init(): Promise<void> {
    return Promise.resolve();
  }

  acquireConnection(): Promise<DatabaseConnection> {
    return Promise.resolve(new LibsqlConnection(this.#database, this.#turns, this.#begin));
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
      // libsql leaves this to the garbage collection of its statements; until then the file alone is not the database.
      this.#database.exec('pragma wal_checkpoint(truncate)');
    } catch {
      // On a full disk what is committed stays in the file beside it.
    } finally {
      this.#database.close();
    }
    return Promise.resolve();
  }

  /**
   * Tries for the lock of the file again and again, while the event loop runs and reads have their turns. Writers do so one
   * after the other: those before a writer began earlier, so that its turn comes before its own time is up.
   */
  readonly #begin: Begin = async () => {
    const deadline = performance.now() + patienceMilliseconds;
    const endWriting = await this.#writers.take();
    for (;;) {
      const endTurn = await this.#turns.take();
      try {
        // A prepared statement that finds the file locked stays open, and no COMMIT succeeds before it is collected.
        sayingWhy(() => {
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

/** The one connection, as a query or a transaction uses it. */
class LibsqlConnection implements DatabaseConnection {
  readonly #database: Database.Database;
  readonly #turns: Turns;
  readonly #begin: Begin;
  /** Null outside a transaction. */
  #endTurn: (() => void) | null = null;
  /** What ended the transaction: SQLite undoes one by itself when the disk fails or is full. */
  #failure: Error | null = null;

  constructor(database: Database.Database, turns: Turns, begin: Begin) {
    this.#database = database;
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
      if (this.#database.inTransaction) this.#database.exec('rollback');
      return Promise.resolve();
    } finally {
      this.#end();
    }
  }

  async executeQuery<Row>(query: CompiledQuery): Promise<QueryResult<Row>> {
    if (this.#endTurn !== null) return this.#inTransaction(() => runStatement<Row>(this.#database, query));
    return mayWrite(query) ? this.#alone<Row>(query) : this.#read<Row>(query);
  }

  /** For large results that are read bit by bit, of which this program has none. */
  streamQuery(): never {
    throw new Error('SQLite is not streamed');
  }

  async #read<Row>(query: CompiledQuery): Promise<QueryResult<Row>> {
    const endTurn = await this.#turns.take();
    try {
      return runStatement<Row>(this.#database, query);
    } finally {
      endTurn();
    }
  }

  async #alone<Row>(query: CompiledQuery): Promise<QueryResult<Row>> {
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

  // eslint-disable-next-line @typescript-eslint/require-await -- what it throws is a rejection
  async #inTransaction<Result>(act: () => Result): Promise<Result> {
    // What came behind the failure would be kept on its own.
    if (this.#failure !== null) throw this.#failure;
    try {
      return sayingWhy(act);
    } catch (error) {
      if (!this.#database.inTransaction) this.#failure = error as Error;
      throw error;
    }
  }

  #end(): void {
    this.#endTurn?.();
    this.#endTurn = null;
    this.#failure = null;
  }
}

/** Raw statements outside a transaction run as they are: most pragmas do nothing within one. */
function mayWrite({ query }: CompiledQuery): boolean {
  return !SelectQueryNode.is(query) && !RawNode.is(query);
}

/** One at a time, in the order in which they ask. */
class Turns {
  #last: Promise<void> = Promise.resolve();

  /** The result ends the turn. */
  async take(): Promise<() => void> {
    const before = this.#last;
    let end = (): void => undefined;
    this.#last = new Promise((resolve) => (end = resolve));
    await before;
    return end;
  }
}

/**
 * Runs one statement.
 * @throws DatabaseError for what an operator can mend
 */
function runStatement<Row>(
  database: Database.Database,
  { sql, parameters }: Pick<CompiledQuery, 'sql' | 'parameters'>,
): QueryResult<Row> {
  return sayingWhy(() => {
    const statement = database.prepare(sql);
    const values = parameters.map(bindable);
    if (statement.reader) return { rows: statement.all(values) as Row[] };
    const { changes, lastInsertRowid } = statement.run(values);
    return { numAffectedRows: BigInt(changes), insertId: BigInt(lastInsertRowid), rows: [] };
  });
}

interface Failure {
  readonly codes: RegExp;
  readonly condition: DatabaseCondition;
  readonly remedy: string;
}

const failures: readonly Failure[] = [
  {
    codes: /^SQLITE_(?:BUSY|LOCKED)/,
    condition: 'busy',
    remedy: 'it is locked by another program; let that one end, or end it',
  },
  { codes: /^SQLITE_FULL/, condition: 'full', remedy: 'its disk is full; make room' },
  { codes: /^SQLITE_READONLY/, condition: 'readOnly', remedy: 'it is read-only; let this user write it' },
  { codes: /^SQLITE_(?:IOERR|CANTOPEN)/, condition: 'failing', remedy: 'its disk fails; check the disk and its quota' },
];

/** Makes what an operator can mend a DatabaseError; what is wrong with a statement stays as it is. */
function sayingWhy<Result>(act: () => Result): Result {
  try {
    return act();
  } catch (error) {
    const code = error instanceof Database.SqliteError ? error.code : '';
    const failure = failures.find(({ codes }) => codes.test(code));
    if (failure === undefined) throw error;
    const { condition, remedy } = failure;
    throw new DatabaseError(`The SQLite database cannot be used (${code}): ${remedy}.`, { cause: error, condition });
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
