import type { Kysely, Migration } from '../../database/kysely.js';

/**
 * Columns for seals. `sealed_by` has the ids of the secrets with which records in the gateways' store are sealed
 * (authenticated). `sealed_change` names the published change for which `sealed_by` is valid. `seals` says whether a
 * gateway seals its acknowledgements.
 */
export const seals: Migration = {
  async up(database: Kysely<unknown>): Promise<void> {
    const change = (table: string) => database.schema.alterTable(table);
    // Uses a statement for each column, because SQLite can add only one column per statement.
    await change('revision').addColumn('sealed_by', 'text').execute();
    await change('revision').addColumn('sealed_change', 'text').execute();
    await change('gateways')
      .addColumn('seals', 'integer', (column) => column.notNull().defaultTo(0))
      .execute();
  },
};
