import type { Kysely, Migration } from '../../database/kysely.js';

/**
 * A table for the ids of earlier generations. Each complete rewrite of the store that gateways read begins a new
 * generation. A store that names an earlier generation belongs to this database, so the registry may rebuild it.
 */
export const formerGenerations: Migration = {
  async up({ schema }: Kysely<unknown>): Promise<void> {
    await schema
      .createTable('former_generations')
      .addColumn('generation', 'text', (column) => column.primaryKey())
      .execute();
  },
};
