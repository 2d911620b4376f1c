import { sql, type Kysely, type Migration } from '../../database/kysely.js';

/**
 * Adds a column for the merchant's own reference of a payout, unique per merchant and environment. Processes of the
 * previous release, which run during an upgrade, leave the reference null. Also adds a table for the list positions of
 * deleted customers.
 */
export const payoutReference: Migration = {
  async up({ schema }: Kysely<unknown>): Promise<void> {
    await schema.alterTable('payouts').addColumn('merchant_reference', 'text').execute();
    await schema
      .createIndex('payouts_merchant_reference')
      .unique()
      .on('payouts')
      .columns(['merchant_reference', 'merchant_id', 'environment'])
      .where(sql.ref('merchant_reference'), 'is not', null)
      .execute();
    await schema
      .createTable('deleted_customers')
      .addColumn('id', 'text', (column) => column.primaryKey().notNull())
      .addColumn('merchant_id', 'text', (column) => column.notNull())
      .addColumn('environment', 'text', (column) => column.notNull())
      .addColumn('sequence', 'bigint', (column) => column.notNull())
      .addColumn('deleted_at', 'bigint', (column) => column.notNull())
      .execute();
    await schema.createIndex('deleted_customers_age').on('deleted_customers').columns(['deleted_at']).execute();
  },
};
