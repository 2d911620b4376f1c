import type { Kysely, Migration } from '../../database/kysely.js';

/** An index to find events by request id, so that an event of the services that arrives again is not stored twice. */
export const eventsOfServices: Migration = {
  async up({ schema }: Kysely<unknown>): Promise<void> {
    await schema.createIndex('events_request_id').on('events').column('request_id').execute();
  },
};
