import type { Kysely, Migration } from '../../database/kysely.js';

/** Finds the event of an import among the events of a merchant who has many: that of a key is known by its change. */
export const eventsOfChange: Migration = {
  async up({ schema }: Kysely<unknown>): Promise<void> {
    await schema.createIndex('events_of_change').on('events').columns(['merchant_id', 'revision']).execute();
  },
};
