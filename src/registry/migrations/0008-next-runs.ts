import { sql, type Kysely, type Migration } from '../../database/kysely.js';

/**
 * A larger index of the runs that could be reported as silent. A run has the lines of one process in one file. The
 * index now includes ended runs that announced a next run: such a run is reported if the next run does not arrive. Runs
 * that ended before this migration are not reported.
 */
export const nextRuns: Migration = {
  async up(database: Kysely<unknown>): Promise<void> {
    await sql`update runs set was_missed = 1 where occasion = 'end'`.execute(database);
    await sql`drop index runs_to_watch`.execute(database);
    await sql`create index runs_to_watch on runs (received_at)
      where was_missed = 0 and (occasion <> 'end' or next_run is not null)`.execute(database);
  },
};
