import { sql, type CreateTableBuilder, type Kysely, type Migration } from '../../database/kysely.js';
import { addSequence } from '../../database/dialects.js';

/**
 * Tables for merchants, keys, events, the outbox, the revision and the projector. The projector is the process that
 * writes records to the store from which gateways read. The outbox lists the records to write. The revision is the
 * number of the newest change.
 */
export const registry: Migration = {
  async up(database: Kysely<unknown>): Promise<void> {
    const { schema } = database;

    await changed(schema.createTable('merchants').addColumn('id', 'text', (column) => column.primaryKey()))
      .addColumn('name', 'text', (column) => column.notNull())
      .addColumn('status', 'text', (column) => column.notNull())
      .addColumn('go_live', 'integer', (column) => column.notNull().check(sql`go_live in (0, 1)`))
      .addColumn('ip_allowlist', 'text')
      .addColumn('origin_allowlist', 'text')
      .execute();
    await schema.createIndex('merchants_list').on('merchants').column('created_revision').execute();

    await changed(schema.createTable('api_keys').addColumn('key_id', 'text', (column) => column.primaryKey()))
      .addColumn('merchant_id', 'text', (column) => column.notNull().references('merchants.id'))
      .addColumn('lookup_id', 'text', (column) => column.notNull().unique())
      .addColumn('environment', 'text', (column) => column.notNull().check(sql`environment in ('live', 'test')`))
      .addColumn('status', 'text', (column) => column.notNull())
      .addColumn('permissions', 'text', (column) => column.notNull())
      .addColumn('label', 'text')
      .addColumn('expires_at', 'bigint')
      .execute();
    await schema.createIndex('api_keys_list').on('api_keys').columns(['merchant_id', 'created_revision']).execute();

    await addSequence(database, schema.createTable('events'), 'seq')
      .addColumn('at', 'bigint', (column) => column.notNull())
      .addColumn('actor', 'text', (column) => column.notNull())
      .addColumn('action', 'text', (column) => column.notNull())
      .addColumn('merchant_id', 'text', (column) => column.notNull())
      .addColumn('key_id', 'text')
      .addColumn('before', 'text')
      .addColumn('after', 'text')
      .addColumn('revision', 'bigint', (column) => column.notNull())
      .execute();
    await schema.createIndex('events_of_merchant').on('events').columns(['merchant_id', 'seq']).execute();
    await schema.createIndex('events_of_key').on('events').columns(['key_id', 'seq']).execute();

    await schema
      .createTable('outbox')
      .addColumn('revision', 'bigint', (column) => column.notNull())
      .addColumn('name', 'text', (column) => column.notNull())
      .addPrimaryKeyConstraint('outbox_key', ['revision', 'name'])
      .execute();

    await onlyRow(schema.createTable('revision'))
      .addColumn('value', 'bigint', (column) => column.notNull())
      .addColumn('generation', 'text', (column) => column.notNull())
      .execute();
    await onlyRow(schema.createTable('projector'))
      .addColumn('holder', 'text', (column) => column.notNull())
      .addColumn('lease_ends_at', 'bigint', (column) => column.notNull())
      .execute();
  },
};

function changed<Table extends string, Column extends string>(table: CreateTableBuilder<Table, Column>) {
  return table
    .addColumn('created_revision', 'bigint', (column) => column.notNull())
    .addColumn('revision', 'bigint', (column) => column.notNull())
    .addColumn('created_at', 'bigint', (column) => column.notNull())
    .addColumn('updated_at', 'bigint', (column) => column.notNull());
}

function onlyRow<Table extends string>(table: CreateTableBuilder<Table>) {
  return table.addColumn('id', 'integer', (column) => column.primaryKey().check(sql`id = 1`));
}
