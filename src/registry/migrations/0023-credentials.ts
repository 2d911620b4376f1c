import { lockTables } from '../../database/dialects.js';
import type { Kysely, Migration } from '../../database/kysely.js';

/**
 * Adds columns. `token_id` names the token that made a request for approval. `sign_in_id` names the command-line
 * sign-in that created a link, or the link of a session. `has_claimed_roles` says whether claims gave the roles of a
 * sign-in. The previous release ignores these columns. They are no foreign keys: ended sign-ins are deleted, and
 * PostgreSQL would lock the referenced tables too. The index finds the start checkpoint of a run.
 */
export const credentials: Migration = {
  async up(database: Kysely<unknown>): Promise<void> {
    const { schema } = database;
    const opened = ['console_links', 'console_sessions'];
    await lockTables(database, [...opened, 'sign_ins', 'approvals', 'checkpoint_list']);
    for (const table of opened) await schema.alterTable(table).addColumn('sign_in_id', 'text').execute();
    await schema.alterTable('approvals').addColumn('token_id', 'text').execute();
    await schema.alterTable('sign_ins').addColumn('has_claimed_roles', 'integer').execute();
    await schema.createIndex('checkpoint_list_by_arrival').on('checkpoint_list').column('received_at').execute();
  },
};
