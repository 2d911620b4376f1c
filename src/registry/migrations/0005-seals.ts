import type { Kysely, Migration } from '../../database/kysely.js';

/** What the records in the store are sealed with, and which gateways seal what they acknowledge. */
export const seals: Migration = {
  async up(database: Kysely<unknown>): Promise<void> {
    const change = (table: string) => database.schema.alterTable(table);
    // One column at a time: SQLite adds no more.
    await change('revision').addColumn('sealed_by', 'text').execute();
    await change('revision').addColumn('sealed_change', 'text').execute();
    await change('gateways')
      .addColumn('seals', 'integer', (column) => column.notNull().defaultTo(0))
      .execute();
  },
};
