import type { Kysely, Migration } from '../../database/kysely.js';

/** A table for checkpoints (signed states of an access log) that a newer checkpoint of the same log has replaced. */
export const earlierCheckpoints: Migration = {
  async up({ schema }: Kysely<unknown>): Promise<void> {
    await schema
      .createTable('earlier_checkpoints')
      .addColumn('digest', 'text', (column) => column.primaryKey())
      .addColumn('received_at', 'bigint', (column) => column.notNull())
      .execute();
    await schema.createIndex('earlier_checkpoints_by_age').on('earlier_checkpoints').column('received_at').execute();
  },
};
