import type { Kysely, Migration } from '../../database/kysely.js';

/** Tables for sessions, one-time links and sign-ins of the web console. The previous release ignores these tables. */
export const console: Migration = {
  async up({ schema }: Kysely<unknown>): Promise<void> {
    const owned = (name: string) =>
      schema
        .createTable(name)
        .addColumn('id', 'text', (column) => column.primaryKey())
        .addColumn('digest', 'text', (column) => column.notNull().unique())
        .addColumn('administrator_id', 'text', (column) => column.notNull().references('administrators.id'))
        .addColumn('roles', 'text')
        .addColumn('sources', 'text')
        .addColumn('issued_by', 'text')
        .addColumn('token_id', 'text', (column) => column.references('administrator_tokens.id'))
        .addColumn('created_at', 'bigint', (column) => column.notNull())
        .addColumn('expires_at', 'bigint', (column) => column.notNull());
    await owned('console_sessions')
      .addColumn('last_seen_at', 'bigint', (column) => column.notNull())
      .addColumn('proven_at', 'bigint')
      .addColumn('proven_by', 'text', (column) => column.notNull())
      .addColumn('source', 'text', (column) => column.notNull())
      .addColumn('browser', 'text', (column) => column.notNull())
      .addColumn('ended_at', 'bigint')
      .execute();
    await owned('console_links').addColumn('used_at', 'bigint').execute();
    await schema
      .createTable('console_sign_ins')
      .addColumn('id', 'text', (column) => column.primaryKey())
      .addColumn('digest', 'text', (column) => column.notNull().unique())
      .addColumn('sealed', 'text', (column) => column.notNull())
      .addColumn('session_id', 'text')
      .addColumn('source', 'text', (column) => column.notNull())
      .addColumn('created_at', 'bigint', (column) => column.notNull())
      .addColumn('expires_at', 'bigint', (column) => column.notNull())
      .execute();
    await schema
      .createIndex('console_sessions_administrator_id')
      .on('console_sessions')
      .column('administrator_id')
      .execute();
    for (const table of ['console_sessions', 'console_links', 'console_sign_ins'])
      await schema.createIndex(`${table}_expires_at`).on(table).column('expires_at').execute();
  },
};
