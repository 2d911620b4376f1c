import type { Kysely, Migration } from '../../database/kysely.js';

/** The former generations of this database. A store with one of them belongs to it, even if it has to be rebuilt. */
export const formerGenerations: Migration = {
  async up({ schema }: Kysely<unknown>): Promise<void> {
    await schema
      .createTable('former_generations')
      .addColumn('generation', 'text', (column) => column.primaryKey())
      .execute();
  },
};
