import { PostgresAdapter, type Kysely } from './kysely.js';

/** Whether a database is PostgreSQL; otherwise it is SQLite. For the few statements that only one of them has. */
export function isPostgres<Tables>(database: Kysely<Tables>): boolean {
  return database.getExecutor().adapter instanceof PostgresAdapter;
}
