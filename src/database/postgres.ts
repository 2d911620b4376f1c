import pg from 'pg';
import { DatabaseError, explainPostgresFailure, placeIn, postgresCondition } from './database-error.js';
import { PostgresDialect, type PostgresPool, type PostgresPoolClient } from './kysely.js';

/** How many connections to PostgreSQL there may be, and how long they may take; SQLite has one, on this machine. */
export interface PoolOptions {
  readonly maxConnections: number;
  /** How long a query may wait for a connection, or a connection for the server. */
  readonly connectTimeoutSeconds: number;
  /** How long a statement may run, waiting for locks included. */
  readonly statementTimeoutSeconds: number;
}

/** How much longer than the server the client waits: a server that has vanished keeps no timeout. */
const graceMilliseconds = 2000;
/** A writer whose process hangs must not hold up the others for longer. */
const idleTransactionTimeoutMilliseconds = 10_000;

/**
 * PostgreSQL for Kysely, over a pool that connects when it is first needed.
 * @throws DatabaseError for a URL that cannot be read
 */
export function openPostgres(url: string, options: PoolOptions): PostgresDialect {
  const place = placeIn(url);
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
  // An idle connection that breaks is taken out of the pool; without a listener it would end the process.
  pool.on('error', () => undefined);
  // The same for one that is lent out while no query is under way on it.
  pool.on('connect', (client) => client.on('error', () => undefined));
  return new PostgresDialect({ pool: sayingWhy(pool, place) });
}

/** By a statement: a pooler refuses a connection that names such settings when it begins. */
async function limitTimes(client: pg.ClientBase, statementTimeout: number): Promise<void> {
  await client.query(
    `set statement_timeout = ${statementTimeout}; set idle_in_transaction_session_timeout = ${idleTransactionTimeoutMilliseconds}`,
  );
}

type ParserLookup = typeof pg.types.getTypeParser;

/** pg gives 64-bit integers as texts; on SQLite they are numbers. */
function parserOf(...[type, format]: Parameters<ParserLookup>): (value: string) => unknown {
  if (type === pg.types.builtins.INT8) return safeInteger;
  return pg.types.getTypeParser(type, format) as (value: string) => unknown;
}

function safeInteger(text: string): number {
  const value = Number(text);
  if (!Number.isSafeInteger(value)) throw new RangeError('an integer of the database is too large for a number');
  return value;
}

function sayingWhy(pool: pg.Pool, place: string): PostgresPool {
  return {
    connect: async () => {
      try {
        return new PostgresClient(await pool.connect(), place);
      } catch (error) {
        throw new DatabaseError(explainPostgresFailure(error, place), {
          cause: error,
          condition: postgresCondition(error),
        });
      }
    },
    end: () => pool.end(),
  };
}

/**
 * SQLSTATEs of a server that is away, full, stopping, read-only after a failover or too slow, or that has ended a deadlock:
 * the statement is not at fault, and may succeed later.
 */
const passing = /^(?:08|40|53|57|58)|^(?:25006|25P03|55P03)$/;
/** A connection to a server that is read-only stays with it; a new one is made to the first that can be written to. */
const endsConnection = /^(?:08|57P|58)|^(?:25006|25P03)$/;

/**
 * A connection lent by the pool, whose failures are told apart: what may pass is a DatabaseError, so that it is answered
 * as such, and a connection of which nobody knows what it is doing is not lent again.
 */
class PostgresClient {
  readonly #client: pg.PoolClient;
  readonly #place: string;
  #failure: DatabaseError | null = null;

  constructor(client: pg.PoolClient, place: string) {
    this.#client = client;
    this.#place = place;
  }

  /** Cursors are for streams, of which this program has none. */
  readonly query = ((text: string, parameters: readonly unknown[] = []) =>
    this.#run(text, parameters)) as unknown as PostgresPoolClient['query'];

  release(): void {
    this.#client.release(this.#failure !== null);
  }

  async #run(text: string, parameters: readonly unknown[]): Promise<pg.QueryResult> {
    // A statement after a timed-out one would wait behind it.
    if (this.#failure !== null) throw this.#failure;
    try {
      return await this.#client.query(text, [...parameters]);
    } catch (error) {
      const state = error instanceof pg.DatabaseError ? (error.code ?? '') : null;
      if (isOfThisProgram(error) || (state !== null && !passing.test(state))) throw error;
      const failure = new DatabaseError(explainPostgresFailure(error, this.#place), {
        cause: error,
        condition: postgresCondition(error),
      });
      if (state === null || endsConnection.test(state)) this.#failure = failure;
      throw failure;
    }
  }
}

/** A value that cannot be bound or read says nothing of the connection. */
function isOfThisProgram(error: unknown): boolean {
  return error instanceof RangeError || error instanceof TypeError;
}

/**
 * How many connections are compared before a pooler is taken for one that does not share them. Its other clients can hide the sharing:
 * beside eight busy ones, one comparison in four showed nothing.
 */
const comparedConnections = 25;

/**
 * Makes sure that a connection has one process of PostgreSQL for itself for as long as it lasts. Settings, advisory locks and LISTEN
 * belong to that process. A pooler in transaction mode lends it to another client after each transaction: a lock would then
 * be anybody's, and prove nothing.
 * @returns the id of the process
 * @throws DatabaseError
 */
export async function requireOwnServerProcess(client: pg.Client, options: pg.ClientConfig): Promise<number> {
  const own = await processOf(client);
  // PostgreSQL tells its clients the id of the process; a pooler tells them an id of its own making.
  if ((client as pg.Client & { readonly processID?: number }).processID === own) return own;
  for (let compared = 0; compared < comparedConnections; compared += 1) {
    // A shared process is the next client's, or this client's next one is another: it depends on how the pooler chooses.
    if ((await processOf(client)) !== own || (await connected(options, processOf)) === own) {
      throw new DatabaseError(
        `The PostgreSQL database ${placeIn(options.connectionString ?? '')} is behind a pooler that shares its connections between clients, which this program cannot use: connect to PostgreSQL directly, or set "pool_mode = session" for this database in PgBouncer.`,
      );
    }
  }
  return own;
}

/**
 * Makes sure that connections to a PostgreSQL database have a process of their own each.
 * @throws DatabaseError where they have not, and where that cannot be found out
 */
export async function requireSessions(url: string, pool: PoolOptions): Promise<void> {
  const place = placeIn(url);
  const options = {
    connectionString: url,
    application_name: 'merchant-gateway',
    connectionTimeoutMillis: pool.connectTimeoutSeconds * 1000,
    query_timeout: pool.connectTimeoutSeconds * 1000,
  };
  try {
    await connected(options, (client) => requireOwnServerProcess(client, options));
  } catch (error) {
    if (error instanceof DatabaseError) throw error;
    const condition = postgresCondition(error);
    throw new DatabaseError(explainPostgresFailure(error, place), { cause: error, condition });
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
  if (row === undefined) throw new Error('PostgreSQL does not tell the id of its process');
  return row.pid;
}
