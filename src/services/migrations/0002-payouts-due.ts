import { sql, type Kysely, type Migration } from '../../database/kysely.js';

/**
 * Indexes due payouts by status, because the payout worker often searches for few processing payouts among many pending
 * ones.
 */
export const payoutsDue: Migration = {
  async up({ schema }: Kysely<unknown>): Promise<void> {
    await schema
      .createIndex('payouts_due')
      .on('payouts')
      .columns(['status', 'due_at', 'sequence'])
      .where(sql.ref('due_at'), 'is not', null)
      .execute();
    // No query selects due payouts without a status.
    await schema.dropIndex('payouts_due_at').execute();
  },
};
