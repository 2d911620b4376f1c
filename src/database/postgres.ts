import pg from 'pg';
import { DatabaseError, hostAndDatabaseOf, postgresFailure } from './database-error.js';
import { PostgresDialect, type PostgresPool, type PostgresPoolClient } from './kysely.js';

/** Limits of the PostgreSQL connection pool. SQLite ignores them, because it has one local connection. */
export interface PoolOptions {
  readonly maxConnections: number;
  /** Timeout for getting a connection from the pool, including a new connection to the server. */
  readonly connectTimeoutSeconds: number;
  /** Timeout of a statement, including its wait for locks. */
  readonly statementTimeoutSeconds: number;
}

/**
 * By how much the client's statement timeout exceeds the server's. The client needs a timeout of its own, because a
 * server that has vanished does not enforce its timeout.
 */
const graceMilliseconds = 2000;
/** How long a transaction can be idle before the server ends it. Otherwise a hung process would block other writers. */
const idleTransactionTimeoutMilliseconds = 10_000;

/**
 * Creates the Kysely dialect for PostgreSQL. Its connection pool connects on first use.
 * @throws DatabaseError for a malformed URL
 */
export function openPostgres(url: string, options: PoolOptions): PostgresDialect {
  const place = hostAndDatabaseOf(url);
  const statementTimeout = options.statementTimeoutSeconds * 1000;
  const pool = new pg.Pool({
    connectionString: url,
    application_name: 'merchant-gateway',
    max: options.maxConnections,
    connectionTimeoutMillis: options.connectTimeoutSeconds * 1000,
    query_timeout: statementTimeout + graceMilliseconds,
    verify: (client, done) => {
      limitTimes(client, statementTimeout).then(() => {
        done();
      }, done);
    },
    keepAlive: true,
    types: { getTypeParser: parserOf as ParserLookup },
  });
  // Ignore errors of idle connections: without a listener they would end the process. The pool removes a broken
  // connection.
  pool.on('error', () => undefined);
  // Also ignore errors of a connection that is checked out but runs no query.
  pool.on('connect', (client) => client.on('error', () => undefined));
  return new PostgresDialect({ pool: withDatabaseErrors(pool, place) });
}

/** Sets the timeouts with a statement, because a pooler rejects connections with timeouts in startup parameters. */
async function limitTimes(client: pg.ClientBase, statementTimeout: number): Promise<void> {
  await client.query(
    `set statement_timeout = ${statementTimeout}; set idle_in_transaction_session_timeout = ${idleTransactionTimeoutMilliseconds}`,
  );
}

type ParserLookup = typeof pg.types.getTypeParser;

/** Returns the parser of a column type. 64-bit integers become numbers, as on SQLite; by default pg returns strings. */
function parserOf(...[type, format]: Parameters<ParserLookup>): (value: string) => unknown {
  if (type === pg.types.builtins.INT8) return safeInteger;
  return pg.types.getTypeParser(type, format) as (value: string) => unknown;
}

function safeInteger(text: string): number {
  const value = Number(text);
  if (!Number.isSafeInteger(value)) throw new RangeError('a database integer exceeds the safe integer range');
  return value;
}

function withDatabaseErrors(pool: pg.Pool, place: string): PostgresPool {
  return {
    connect: async () => {
      try {
        return new PostgresClient(await pool.connect(), place);
      } catch (error) {
        throw postgresFailure(error, place);
      }
    },
    end: () => pool.end(),
  };
}

/**
 * SQLSTATEs of transient failures, after which the same statement can succeed later. Either the server is unavailable,
 * overloaded, stopping or too slow, or it has become read-only in a failover, or it has resolved a deadlock.
 */
const transientStates = /^(?:08|40|53|57|58)|^(?:25006|25P03|55P03)$/;
/**
 * SQLSTATEs after which the connection is closed instead of reused. For example, if the server became read-only, this
 * connection would stay on that server, but a new one can reach the writable server.
 */
const endsConnection = /^(?:08|57P|58)|^(?:25006|25P03)$/;

/**
 * A checked-out connection that classifies failures. A transient failure becomes a DatabaseError, so that callers can
 * tell it from errors of the statement. A connection in an unknown state does not return to the pool.
 */
class PostgresClient {
  readonly #client: pg.PoolClient;
  readonly #place: string;
  #failure: DatabaseError | null = null;

  constructor(client: pg.PoolClient, place: string) {
    this.#client = client;
    this.#place = place;
  }

  /**
   * Runs a query. Does not support cursors, which Kysely uses only for streams; this program does not stream results.
   */
  readonly query = ((text: string, parameters: readonly unknown[] = []) =>
    this.#run(text, parameters)) as unknown as PostgresPoolClient['query'];

  release(): void {
    this.#client.release(this.#failure !== null);
  }

  async #run(text: string, parameters: readonly unknown[]): Promise<pg.QueryResult> {
    // Fail at once if the connection is broken, or if an earlier statement on it has timed out in the client. Otherwise
    // a new statement would wait until the server has ended the earlier one.
    if (this.#failure !== null) throw this.#failure;
    try {
      return await this.#client.query(text, [...parameters]);
    } catch (error) {
      const state = error instanceof pg.DatabaseError ? (error.code ?? '') : null;
      if (isClientFault(error) || (state !== null && !transientStates.test(state))) throw error;
      const failure = postgresFailure(error, this.#place);
      if (state === null || endsConnection.test(state)) this.#failure = failure;
      throw failure;
    }
  }
}

/** Whether the error concerns a value that cannot be bound or parsed. The connection is then still usable. */
function isClientFault(error: unknown): boolean {
  return error instanceof RangeError || error instanceof TypeError;
}

/**
 * How many times server process ids are compared to detect a pooler that shares connections between clients. If no
 * comparison detects sharing, the check passes. A single comparison is not enough: with eight other busy clients, one
 * comparison in four missed the sharing.
 */
const comparedConnections = 25;

/**
 * Checks that a connection keeps the same PostgreSQL server process. Settings, advisory locks and LISTEN belong to that
 * process. A pooler in transaction mode gives the process, with its locks, to another client after each transaction.
 * @returns the id of the server process
 * @throws DatabaseError if the connection goes through a pooler in transaction mode
 */
export async function requireOwnServerProcess(client: pg.Client, options: pg.ClientConfig): Promise<number> {
  const own = await processOf(client);
  // On connecting, a client receives a process id. PostgreSQL sends the real id; a pooler sends an invented one. If the
  // id is real, there is no pooler.
  if ((client as pg.Client & { readonly processID?: number }).processID === own) return own;
  for (let compared = 0; compared < comparedConnections; compared += 1) {
    // If the pooler shares connections, either this client gets another process, or a new client gets this process.
    if ((await processOf(client)) !== own || (await connected(options, processOf)) === own) {
      throw new DatabaseError(
        `The PostgreSQL database ${hostAndDatabaseOf(options.connectionString ?? '')} is behind a pooler that shares server connections between clients, which this program does not support: connect to PostgreSQL directly, or set "pool_mode = session" for this database in PgBouncer.`,
      );
    }
  }
  return own;
}

/**
 * Checks that each connection to a PostgreSQL database has its own server process.
 * @throws DatabaseError if connections share a process, or the check fails
 */
export async function requireSessions(url: string, pool: PoolOptions): Promise<void> {
  const place = hostAndDatabaseOf(url);
  const options = {
    connectionString: url,
    application_name: 'merchant-gateway',
    connectionTimeoutMillis: pool.connectTimeoutSeconds * 1000,
    query_timeout: pool.connectTimeoutSeconds * 1000,
  };
  try {
    await connected(options, (client) => requireOwnServerProcess(client, options));
  } catch (error) {
    throw error instanceof DatabaseError ? error : postgresFailure(error, place);
  }
}

async function connected<Result>(
  options: pg.ClientConfig,
  act: (client: pg.Client) => Promise<Result>,
): Promise<Result> {
  const client = new pg.Client(options);
  client.on('error', () => undefined);
  try {
    await client.connect();
    return await act(client);
  } finally {
    await client.end().catch(() => undefined);
  }
}

async function processOf(client: pg.Client): Promise<number> {
  const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid');
  const [row] = rows;
  if (row === undefined) throw new Error('PostgreSQL did not return the id of its process');
  return row.pid;
}
