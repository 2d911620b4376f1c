import { addSequence } from '../../database/dialects.js';
import type { Kysely, Migration } from '../../database/kysely.js';

/**
 * A table for events about operators. It holds each event until the registry has stored the event. Processes of the
 * previous release, which run during an upgrade, add no rows to it.
 */
export const operatorEvents: Migration = {
  async up(database: Kysely<unknown>): Promise<void> {
    await addSequence(database, database.schema.createTable('operator_events'), 'sequence')
      .addColumn('id', 'text', (column) => column.notNull().unique())
      .addColumn('at', 'bigint', (column) => column.notNull())
      .addColumn('event', 'text', (column) => column.notNull())
      .execute();
  },
};
