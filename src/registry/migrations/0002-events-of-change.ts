import type { Kysely, Migration } from '../../database/kysely.js';

/**
 * An index of events by merchant and revision (number of the change). With this index, the event that recorded the
 * import of a key is found quickly, even if the merchant has many events.
 */
export const eventsOfChange: Migration = {
  async up({ schema }: Kysely<unknown>): Promise<void> {
    await schema.createIndex('events_of_change').on('events').columns(['merchant_id', 'revision']).execute();
  },
};
