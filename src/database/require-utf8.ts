import { sql, type Kysely } from './kysely.js';
import { DatabaseError } from './database-error.js';
import { isPostgres } from './is-postgres.js';

/**
 * Makes sure that every text can be kept: PostgreSQL has databases of other encodings, in which a name with an emoji fails.
 * SQLite has none but Unicode.
 * @throws DatabaseError
 */
export async function requireUtf8<Tables>(database: Kysely<Tables>): Promise<void> {
  if (!isPostgres(database)) return;
  const { rows } = await sql<{ encoding: string }>`select current_setting('server_encoding') as encoding`.execute(
    database,
  );
  const encoding = rows[0]?.encoding ?? 'unknown';
  if (encoding === 'UTF8') return;
  throw new DatabaseError(
    `The PostgreSQL database has the encoding ${encoding}, in which not every text can be kept, and was left as it is: make one with "create database NAME encoding 'UTF8' template template0", and move to it what this one has.`,
  );
}
