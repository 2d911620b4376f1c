import { sql, type Kysely, type Migration } from '../../database/kysely.js';

/**
 * Makes the transactions a ledger: each row names the wallet and the account on the other side of the movement. During
 * an upgrade the former release inserts payout rows without that account, so `payouts` is the default.
 */
export const ledger: Migration = {
  async up(database: Kysely<unknown>): Promise<void> {
    const { schema } = database;
    // One statement per column: SQLite adds one column at a time.
    await schema
      .alterTable('transactions')
      .addColumn('counter_account', 'text', (column) =>
        column
          .notNull()
          .defaultTo('payouts')
          .check(sql`counter_account in ('float', 'payouts')`),
      )
      .execute();
    await schema.alterTable('transactions').addColumn('reason', 'text').execute();
    await schema.alterTable('transactions').addColumn('actor', 'text').execute();
    await schema.alterTable('wallets').addColumn('created_by', 'text').execute();
    await sql`update transactions set counter_account = 'float' where payout_id is null`.execute(database);
  },
};
