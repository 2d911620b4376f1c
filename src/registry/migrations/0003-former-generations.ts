import type { Kysely, Migration } from '../../database/kysely.js';

/**
 * Stores the former generations of this database. They show that a store belongs to it even if the store is outdated
 * and has to be rebuilt.
 */
export const formerGenerations: Migration = {
  async up({ schema }: Kysely<unknown>): Promise<void> {
    await schema
      .createTable('former_generations')
      .addColumn('generation', 'text', (column) => column.primaryKey())
      .execute();
  },
};
