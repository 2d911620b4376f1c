import type { Kysely, Migration } from '../../database/kysely.js';

/**
 * Stores the earlier generations (complete rewrites of the store) of this database. An outdated store that names one of
 * them belongs to this database and may be rebuilt.
 */
export const formerGenerations: Migration = {
  async up({ schema }: Kysely<unknown>): Promise<void> {
    await schema
      .createTable('former_generations')
      .addColumn('generation', 'text', (column) => column.primaryKey())
      .execute();
  },
};
