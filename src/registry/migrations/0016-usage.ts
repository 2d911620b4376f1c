import type { Kysely, Migration } from '../../database/kysely.js';

/**
 * Tables for the usage (requests that gateways have counted). The primary keys of hourly and daily counts begin with
 * the time, because old counts are deleted by time. Their other indexes begin with the merchant, because counts are
 * read by merchant.
 */
export const usage: Migration = {
  async up({ schema }: Kysely<unknown>): Promise<void> {
    await schema
      .createTable('usage_processes')
      .addColumn('process', 'text', (column) => column.primaryKey())
      .addColumn('instance', 'text', (column) => column.notNull())
      .addColumn('environment', 'text', (column) => column.notNull())
      .addColumn('sequence', 'bigint', (column) => column.notNull())
      .addColumn('first_at', 'bigint', (column) => column.notNull())
      .addColumn('last_at', 'bigint', (column) => column.notNull())
      .addColumn('received_at', 'bigint', (column) => column.notNull())
      .addColumn('is_ended', 'integer', (column) => column.notNull())
      .addColumn('dropped_refusals', 'bigint', (column) => column.notNull())
      .addColumn('dropped_rows', 'bigint', (column) => column.notNull())
      .execute();
    await schema
      .createIndex('usage_processes_list')
      .on('usage_processes')
      .columns(['received_at', 'process'])
      .execute();
    await schema
      .createTable('usage_gaps')
      .addColumn('process', 'text', (column) => column.notNull())
      .addColumn('first', 'bigint', (column) => column.notNull())
      .addColumn('last', 'bigint', (column) => column.notNull())
      .addColumn('found_at', 'bigint', (column) => column.notNull())
      .addPrimaryKeyConstraint('usage_gaps_key', ['process', 'first'])
      .execute();
    await schema
      .createTable('usage_hours')
      .addColumn('hour', 'bigint', (column) => column.notNull())
      .addColumn('merchant_id', 'text', (column) => column.notNull())
      .addColumn('key_id', 'text', (column) => column.notNull())
      .addColumn('environment', 'text', (column) => column.notNull())
      .addColumn('code', 'text', (column) => column.notNull())
      .addColumn('count', 'bigint', (column) => column.notNull())
      .addColumn('total_milliseconds', 'double precision', (column) => column.notNull())
      .addColumn('slowest_milliseconds', 'double precision', (column) => column.notNull())
      .addColumn('request_bytes', 'bigint', (column) => column.notNull())
      .addColumn('response_bytes', 'bigint', (column) => column.notNull())
      .addPrimaryKeyConstraint('usage_hours_key', ['hour', 'merchant_id', 'key_id', 'environment', 'code'])
      .execute();
    await schema
      .createIndex('usage_hours_of_merchant')
      .on('usage_hours')
      .columns(['merchant_id', 'hour', 'key_id'])
      .execute();
    await schema
      .createTable('usage_addresses')
      .addColumn('day', 'bigint', (column) => column.notNull())
      .addColumn('merchant_id', 'text', (column) => column.notNull())
      .addColumn('key_id', 'text', (column) => column.notNull())
      .addColumn('address', 'text', (column) => column.notNull())
      .addColumn('country', 'text')
      .addColumn('as_number', 'bigint')
      .addColumn('accepted', 'bigint', (column) => column.notNull())
      .addColumn('refused', 'bigint', (column) => column.notNull())
      .addColumn('first_at', 'bigint', (column) => column.notNull())
      .addColumn('last_at', 'bigint', (column) => column.notNull())
      .addPrimaryKeyConstraint('usage_addresses_key', ['day', 'merchant_id', 'key_id', 'address'])
      .execute();
    await schema
      .createTable('usage_agents')
      .addColumn('day', 'bigint', (column) => column.notNull())
      .addColumn('merchant_id', 'text', (column) => column.notNull())
      .addColumn('key_id', 'text', (column) => column.notNull())
      .addColumn('agent', 'text', (column) => column.notNull())
      .addColumn('count', 'bigint', (column) => column.notNull())
      .addPrimaryKeyConstraint('usage_agents_key', ['day', 'merchant_id', 'key_id', 'agent'])
      .execute();
    await schema
      .createTable('usage_hosts')
      .addColumn('day', 'bigint', (column) => column.notNull())
      .addColumn('merchant_id', 'text', (column) => column.notNull())
      .addColumn('header', 'text', (column) => column.notNull())
      .addColumn('host', 'text', (column) => column.notNull())
      .addColumn('accepted', 'bigint', (column) => column.notNull())
      .addColumn('refused', 'bigint', (column) => column.notNull())
      .addPrimaryKeyConstraint('usage_hosts_key', ['day', 'merchant_id', 'header', 'host'])
      .execute();
    for (const name of ['addresses', 'agents', 'hosts'])
      await schema
        .createIndex(`usage_${name}_of_merchant`)
        .on(`usage_${name}`)
        .columns(name === 'hosts' ? ['merchant_id', 'day'] : ['merchant_id', 'day', 'key_id'])
        .execute();
    await schema
      .createTable('usage_keys')
      .addColumn('key_id', 'text', (column) => column.primaryKey())
      .addColumn('merchant_id', 'text', (column) => column.notNull())
      .addColumn('last_at', 'bigint', (column) => column.notNull())
      .addColumn('last_address', 'text', (column) => column.notNull())
      .addColumn('last_country', 'text')
      .execute();
    await schema.createIndex('usage_keys_of_merchant').on('usage_keys').column('merchant_id').execute();
    await schema
      .createTable('usage_merchants')
      .addColumn('merchant_id', 'text', (column) => column.primaryKey())
      .addColumn('refusals', 'bigint', (column) => column.notNull())
      .execute();
    await schema
      .createTable('usage_refusals')
      .addColumn('merchant_id', 'text', (column) => column.notNull())
      .addColumn('seq', 'bigint', (column) => column.notNull())
      .addColumn('at', 'bigint', (column) => column.notNull())
      .addColumn('environment', 'text', (column) => column.notNull())
      .addColumn('code', 'text', (column) => column.notNull())
      .addColumn('status', 'integer', (column) => column.notNull())
      .addColumn('method', 'text', (column) => column.notNull())
      .addColumn('path', 'text', (column) => column.notNull())
      .addColumn('address', 'text')
      .addColumn('key_id', 'text')
      .addColumn('header_name', 'text')
      .addColumn('header_value', 'text')
      .addColumn('request_id', 'text', (column) => column.notNull())
      .addPrimaryKeyConstraint('usage_refusals_key', ['merchant_id', 'seq'])
      .execute();
    await schema.createIndex('usage_refusals_age').on('usage_refusals').column('at').execute();
  },
};
