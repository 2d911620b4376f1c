import { sql, type Kysely, type Migration } from '../../database/kysely.js';

/**
 * Makes the transactions a ledger: each row names the wallet and the account on the other side, from which its money came or to
 * which it went. Beside this release the former one adds rows of payouts without naming an account, so that is the default.
 */
export const ledger: Migration = {
  async up(database: Kysely<unknown>): Promise<void> {
    const { schema } = database;
    // A statement each: SQLite adds one column at a time.
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
