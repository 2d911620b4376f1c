import type { Kysely, Migration } from '../../database/kysely.js';

/** Indexes for the search by request id and address. The previous release works unchanged with these indexes. */
export const search: Migration = {
  async up({ schema }: Kysely<unknown>): Promise<void> {
    await schema.createIndex('usage_refusals_request_id').on('usage_refusals').column('request_id').execute();
    await schema
      .createIndex('usage_addresses_address')
      .on('usage_addresses')
      .columns(['address', 'merchant_id'])
      .execute();
  },
};
