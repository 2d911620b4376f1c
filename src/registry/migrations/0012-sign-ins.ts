import type { Kysely, Migration } from '../../database/kysely.js';

/** A table for sign-ins with an OpenID provider. The previous release ignores this table. */
export const signIns: Migration = {
  async up({ schema }: Kysely<unknown>): Promise<void> {
    await schema
      .createTable('sign_ins')
      .addColumn('id', 'text', (column) => column.primaryKey())
      .addColumn('status', 'text', (column) => column.notNull())
      .addColumn('digest', 'text', (column) => column.notNull().unique())
      .addColumn('former_digest', 'text')
      .addColumn('sealed', 'text')
      .addColumn('administrator_id', 'text', (column) => column.references('administrators.id'))
      .addColumn('token_id', 'text', (column) => column.references('administrator_tokens.id'))
      .addColumn('source', 'text', (column) => column.notNull())
      .addColumn('interval_seconds', 'integer', (column) => column.notNull())
      .addColumn('polled_at', 'bigint', (column) => column.notNull())
      .addColumn('created_at', 'bigint', (column) => column.notNull())
      .addColumn('expires_at', 'bigint', (column) => column.notNull())
      .execute();
    for (const column of ['former_digest', 'token_id', 'expires_at'])
      await schema.createIndex(`sign_ins_${column}`).on('sign_ins').column(column).execute();
  },
};
