import type { Kysely, Migration } from '../../database/kysely.js';

/** Finds events by their request, so that a repeated event of the services is stored once. */
export const eventsOfServices: Migration = {
  async up({ schema }: Kysely<unknown>): Promise<void> {
    await schema.createIndex('events_request_id').on('events').column('request_id').execute();
  },
};
