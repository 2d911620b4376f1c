import pg from 'pg';
import { DatabaseError } from './database-error.js';
import type { PoolOptions } from './open-database.js';
import { explainPostgresFailure, placeIn, postgresCondition } from './postgres-failure.js';

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
