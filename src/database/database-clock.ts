import { sql, type Kysely, type RawBuilder } from './kysely.js';
import { isPostgres } from './is-postgres.js';

/** A time, in milliseconds since 1970, as it stands in a statement. */
export type Moment = RawBuilder<number>;

/** Tells the time inside statements. */
export interface DatabaseClock {
  now(): Moment;
}

/** The moment at which the statement began: the same wherever it is named in it, and known before an index is read. */
const postgresNow = sql<number>`floor(extract(epoch from statement_timestamp()) * 1000)::bigint`;

/**
 * The clock by which everybody judges who uses a database. Processes on several machines share PostgreSQL and not their
 * clocks, so there it is the database's own; SQLite has one process, whose clock it is.
 */
export function databaseClock<Tables>(database: Kysely<Tables>, processClock: { now(): number }): DatabaseClock {
  return isPostgres(database) ? { now: () => postgresNow } : { now: () => momentOf(processClock.now()) };
}

/** A time that is known. */
export function momentOf(milliseconds: number): Moment {
  // PostgreSQL must be told the type of a value with which it shall reckon.
  return sql<number>`cast(${milliseconds} as bigint)`;
}

/** So many milliseconds after a moment, or before it. */
export function later(moment: Moment, milliseconds: number): Moment {
  return sql<number>`(${moment} + ${milliseconds})`;
}
