import type { Kysely, Migration } from '../../database/kysely.js';

/**
 * Tables for unusual use: the usual behaviour of each key, the findings, the patterns of use that an administrator
 * accepted, and the webhook messages to send.
 */
export const unusualUse: Migration = {
  async up({ schema }: Kysely<unknown>): Promise<void> {
    await schema
      .createTable('key_habits')
      .addColumn('key_id', 'text', (column) => column.primaryKey())
      .addColumn('state', 'text', (column) => column.notNull())
      .execute();
    await schema
      .createTable('usage_watch')
      .addColumn('id', 'integer', (column) => column.primaryKey())
      .addColumn('since', 'bigint', (column) => column.notNull())
      .addColumn('last_at', 'bigint', (column) => column.notNull())
      .addColumn('country_at', 'bigint')
      .addColumn('network_at', 'bigint')
      .execute();
    await schema
      .createTable('unusual_findings')
      .addColumn('id', 'text', (column) => column.primaryKey())
      .addColumn('key_id', 'text', (column) => column.notNull())
      .addColumn('merchant_id', 'text', (column) => column.notNull())
      .addColumn('rule', 'text', (column) => column.notNull())
      .addColumn('pattern', 'text', (column) => column.notNull())
      .addColumn('found_at', 'bigint', (column) => column.notNull())
      .addColumn('seen_at', 'bigint', (column) => column.notNull())
      .addColumn('message', 'text', (column) => column.notNull())
      .addColumn('address', 'text')
      .addColumn('country', 'text')
      .addColumn('as_number', 'bigint')
      .addColumn('decision', 'text')
      .addColumn('decided_at', 'bigint')
      .addColumn('decided_by', 'text')
      .execute();
    await schema.createIndex('unusual_findings_key_id').on('unusual_findings').column('key_id').execute();
    await schema.createIndex('unusual_findings_merchant_id').on('unusual_findings').column('merchant_id').execute();
    await schema.createIndex('unusual_findings_found_at').on('unusual_findings').column('found_at').execute();
    await schema
      .createTable('usual_patterns')
      .addColumn('key_id', 'text', (column) => column.notNull())
      .addColumn('pattern', 'text', (column) => column.notNull())
      .addPrimaryKeyConstraint('usual_patterns_key', ['key_id', 'pattern'])
      .execute();
    await schema
      .createTable('webhooks')
      .addColumn('id', 'text', (column) => column.notNull())
      .addColumn('target', 'text', (column) => column.notNull())
      .addColumn('body', 'text', (column) => column.notNull())
      .addColumn('created_at', 'bigint', (column) => column.notNull())
      .addColumn('attempts', 'integer', (column) => column.notNull())
      .addColumn('next_at', 'bigint', (column) => column.notNull())
      .addColumn('given_up_at', 'bigint')
      .addColumn('problem', 'text')
      .addPrimaryKeyConstraint('webhooks_key', ['id', 'target'])
      .execute();
    await schema.createIndex('webhooks_next_at').on('webhooks').column('next_at').execute();
  },
};
