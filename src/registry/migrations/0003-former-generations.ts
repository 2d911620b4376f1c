import type { Kysely, Migration } from '../../database/kysely.js';

/** The names of the histories that this database has had: a store that has one of them is its own, though it is to be written anew. */
export const formerGenerations: Migration = {
  async up({ schema }: Kysely<unknown>): Promise<void> {
    await schema
      .createTable('former_generations')
      .addColumn('generation', 'text', (column) => column.primaryKey())
      .execute();
  },
};
