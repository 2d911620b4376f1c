import type { Kysely, Migration } from '../../database/kysely.js';

/**
 * Columns for the ids of the secrets with which the store's records are sealed (authenticated), and for whether a
 * gateway seals its acknowledgements.
 */
export const seals: Migration = {
  async up(database: Kysely<unknown>): Promise<void> {
    const change = (table: string) => database.schema.alterTable(table);
    // SQLite adds one column per statement.
    await change('revision').addColumn('sealed_by', 'text').execute();
    await change('revision').addColumn('sealed_change', 'text').execute();
    await change('gateways')
      .addColumn('seals', 'integer', (column) => column.notNull().defaultTo(0))
      .execute();
  },
};
