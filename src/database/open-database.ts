import { Kysely } from 'kysely';
import { DatabaseError } from './database-error.js';
import { openPostgres } from './postgres.js';
import { openSqlite } from './sqlite.js';

/** Where a database is. */
export interface DatabaseOptions {
  /** `sqlite:PATH`, `sqlite::memory:` for one that ends with the process, or `postgres://…`. */
  readonly url: string;
}

/**
 * Opens a database. An SQLite file is created where there is none; PostgreSQL is connected to at the first query, and
 * that query then tells of a failure, as a DatabaseError. Whoever opened it ends it with `destroy()`.
 * @throws DatabaseError
 */
export function openDatabase<Tables>({ url }: DatabaseOptions): Kysely<Tables> {
  // Only a scheme is ever quoted from a URL: the rest may hold a password.
  const [, scheme = '', rest = ''] = /^([a-z0-9+]*:)?(.*)$/is.exec(url) ?? [];
  if (scheme === 'sqlite:' && rest !== '') return new Kysely<Tables>({ dialect: openSqlite(rest) });
  if (scheme === 'postgres:' || scheme === 'postgresql:') return new Kysely<Tables>({ dialect: openPostgres(url) });
  const found = scheme === 'sqlite:' || scheme === '' ? '' : `; this one begins with ${scheme}`;
  throw new DatabaseError(
    `A database URL must be sqlite:PATH, sqlite::memory: or postgres://USER@HOST:PORT/DATABASE${found}.`,
  );
}
