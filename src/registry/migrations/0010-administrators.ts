import type { Kysely, Migration } from '../../database/kysely.js';

/**
 * Tables for administrators and their tokens, and columns for the author of an event. The columns are null in events of
 * earlier releases, because those releases did not verify who the caller was.
 */
export const administrators: Migration = {
  async up({ schema }: Kysely<unknown>): Promise<void> {
    await schema
      .createTable('administrators')
      .addColumn('id', 'text', (column) => column.primaryKey())
      .addColumn('name', 'text', (column) => column.notNull().unique())
      .addColumn('kind', 'text', (column) => column.notNull())
      .addColumn('status', 'text', (column) => column.notNull())
      .addColumn('roles', 'text', (column) => column.notNull())
      .addColumn('merchant_id', 'text', (column) => column.references('merchants.id'))
      .addColumn('issuer', 'text')
      .addColumn('subject', 'text')
      .addColumn('created_at', 'bigint', (column) => column.notNull())
      .addColumn('updated_at', 'bigint', (column) => column.notNull())
      .addColumn('version', 'integer', (column) => column.notNull())
      .addUniqueConstraint('administrators_subject', ['issuer', 'subject'])
      .execute();
    await schema
      .createTable('administrator_tokens')
      .addColumn('id', 'text', (column) => column.primaryKey())
      .addColumn('administrator_id', 'text', (column) => column.notNull().references('administrators.id'))
      .addColumn('kind', 'text', (column) => column.notNull())
      .addColumn('name', 'text', (column) => column.notNull())
      .addColumn('digest', 'text', (column) => column.notNull().unique())
      .addColumn('roles', 'text')
      .addColumn('sources', 'text')
      .addColumn('created_at', 'bigint', (column) => column.notNull())
      .addColumn('expires_at', 'bigint', (column) => column.notNull())
      .addColumn('revoked_at', 'bigint')
      .addColumn('last_used_at', 'bigint')
      .addColumn('last_source', 'text')
      .execute();
    await schema
      .createIndex('administrator_tokens_of')
      .on('administrator_tokens')
      .columns(['administrator_id', 'created_at'])
      .execute();
    for (const name of ['administrator_id', 'proof', 'claimed', 'source', 'request_id', 'reason'])
      await schema.alterTable('events').addColumn(name, 'text').execute();
  },
};
