import { Kysely } from './kysely.js';
import { DatabaseError } from './database-error.js';
import { openPostgres } from './postgres.js';
import { openSqlite } from './sqlite.js';

/** How many connections to PostgreSQL there may be, and how long they may take; SQLite has one, on this machine. */
export interface PoolOptions {
  readonly maxConnections: number;
  /** How long a query may wait for a connection, or a connection for the server. */
  readonly connectTimeoutSeconds: number;
  /** How long a statement may run, waiting for locks included. */
  readonly statementTimeoutSeconds: number;
}

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
