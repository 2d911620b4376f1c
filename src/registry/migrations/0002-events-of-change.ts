import type { Kysely, Migration } from '../../database/kysely.js';

/**
 * An index to find the event of a key's import by merchant and revision (number of the change), because a merchant can
 * have many events.
 */
export const eventsOfChange: Migration = {
  async up({ schema }: Kysely<unknown>): Promise<void> {
    await schema.createIndex('events_of_change').on('events').columns(['merchant_id', 'revision']).execute();
  },
};
