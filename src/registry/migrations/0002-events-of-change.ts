import type { Kysely, Migration } from '../../database/kysely.js';

/** An index to find a key's import event by its revision, among the many events of a merchant. */
export const eventsOfChange: Migration = {
  async up({ schema }: Kysely<unknown>): Promise<void> {
    await schema.createIndex('events_of_change').on('events').columns(['merchant_id', 'revision']).execute();
  },
};
