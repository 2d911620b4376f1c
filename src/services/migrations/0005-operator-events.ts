import { addSequence } from '../../database/dialects.js';
import type { Kysely, Migration } from '../../database/kysely.js';

/** Changes by operators that the registry does not have in its events yet. A former release adds none. */
export const operatorEvents: Migration = {
  async up(database: Kysely<unknown>): Promise<void> {
    await addSequence(database, database.schema.createTable('operator_events'), 'sequence')
      .addColumn('id', 'text', (column) => column.notNull().unique())
      .addColumn('at', 'bigint', (column) => column.notNull())
      .addColumn('event', 'text', (column) => column.notNull())
      .execute();
  },
};
