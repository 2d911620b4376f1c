import { sql, type Kysely, type Migration } from '../../database/kysely.js';

/**
 * Watches a run that ended with the name of a next run, until that next run arrives. Older runs that ended are not
 * watched.
 */
export const nextRuns: Migration = {
  async up(database: Kysely<unknown>): Promise<void> {
    await sql`update runs set was_missed = 1 where occasion = 'end'`.execute(database);
    await sql`drop index runs_to_watch`.execute(database);
    await sql`create index runs_to_watch on runs (received_at)
      where was_missed = 0 and (occasion <> 'end' or next_run is not null)`.execute(database);
  },
};
