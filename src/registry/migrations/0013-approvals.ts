import { type Kysely, type Migration, sql } from '../../database/kysely.js';

/**
 * Tables for changes that wait for approval, and for the rules that require approval. Also a column for the
 * administrator who issued a token to another administrator. The issuer could know the token, and use it to approve a
 * request of their own.
 */
export const approvals: Migration = {
  async up(database: Kysely<unknown>): Promise<void> {
    const { schema } = database;
    await schema
      .createTable('approvals')
      .addColumn('id', 'text', (column) => column.primaryKey())
      .addColumn('change', 'text', (column) => column.notNull())
      .addColumn('merchant_id', 'text', (column) => column.notNull())
      .addColumn('subject', 'text')
      .addColumn('input', 'text', (column) => column.notNull())
      .addColumn('before', 'text')
      .addColumn('after', 'text', (column) => column.notNull())
      .addColumn('requested_by', 'text')
      .addColumn('requester', 'text', (column) => column.notNull())
      .addColumn('reason', 'text')
      .addColumn('requested_at', 'bigint', (column) => column.notNull())
      .addColumn('expires_at', 'bigint', (column) => column.notNull())
      .addColumn('status', 'text', (column) => column.notNull())
      .addColumn('decided_by', 'text')
      .addColumn('decider', 'text')
      .addColumn('decided_at', 'bigint')
      .addColumn('decision', 'text')
      .execute();
    await schema.createIndex('approvals_by_status').on('approvals').columns(['status', 'expires_at']).execute();
    await schema
      .createTable('approval_settings')
      .addColumn('id', 'integer', (column) => column.primaryKey())
      .addColumn('rules', 'text', (column) => column.notNull())
      .addColumn('had_second_owner', 'integer', (column) => column.notNull())
      .execute();
    await schema.alterTable('administrator_tokens').addColumn('issued_by', 'text').execute();
    await sql`
      insert into approval_settings (id, rules, had_second_owner)
      select 1, '{}', case when count(*) > 1 then 1 else 0 end from administrators where roles like '%"owner"%'
    `.execute(database);
  },
};
