import { sql, type Kysely, type Migration } from '../../database/kysely.js';

/** Finds the due payouts of one state: beside many that are pending, the few that are processing are looked for each second. */
export const payoutsDue: Migration = {
  async up({ schema }: Kysely<unknown>): Promise<void> {
    await schema
      .createIndex('payouts_due')
      .on('payouts')
      .columns(['status', 'due_at', 'sequence'])
      .where(sql.ref('due_at'), 'is not', null)
      .execute();
    // Nothing asks for due payouts of whatever state.
    await schema.dropIndex('payouts_due_at').execute();
  },
};
