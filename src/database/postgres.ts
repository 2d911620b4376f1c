import { PostgresDialect, type PostgresPool } from './kysely.js';
import pg from 'pg';
import { DatabaseError } from './database-error.js';
import type { PoolOptions } from './open-database.js';
import { PostgresClient } from './postgres-client.js';
import { explainPostgresFailure, placeIn, postgresCondition } from './postgres-failure.js';

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
