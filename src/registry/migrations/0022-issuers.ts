import { lockTables } from '../../database/dialects.js';
import type { Kysely, Migration } from '../../database/kysely.js';

/**
 * Columns for all administrators who could know a token, a link, a session or the credential of a request for approval.
 * The previous release ignores these columns: it reads and writes only the first administrator, in `issued_by`.
 */
export const issuers: Migration = {
  async up(database: Kysely<unknown>): Promise<void> {
    const { schema } = database;
    const tables = ['administrator_tokens', 'console_links', 'console_sessions'];
    // Requests of the previous release read a session and then its token. This migration locks the tokens first, so the
    // two could deadlock. In this case, `lockTables` gives its locks back and tries again.
    await lockTables(database, [...tables, 'approvals']);
    for (const table of tables) await schema.alterTable(table).addColumn('issuers', 'text').execute();
    await schema.alterTable('approvals').addColumn('requester_issuers', 'text').execute();
  },
};
