import { sql, type Kysely, type Migration } from '../../database/kysely.js';

/**
 * An index of due payouts by status, because the payout worker often searches for a few processing payouts among many
 * pending payouts.
 */
export const payoutsDue: Migration = {
  async up({ schema }: Kysely<unknown>): Promise<void> {
    await schema
      .createIndex('payouts_due')
      .on('payouts')
      .columns(['status', 'due_at', 'sequence'])
      .where(sql.ref('due_at'), 'is not', null)
      .execute();
    // Drops the former index, because every search for due payouts now also names a status.
    await schema.dropIndex('payouts_due_at').execute();
  },
};
