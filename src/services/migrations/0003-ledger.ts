import { lockTables } from '../../database/dialects.js';
import { sql, type Kysely, type Migration } from '../../database/kysely.js';

/**
 * The columns that turn the transactions into a ledger. Each row now names the wallet and the account on the other
 * side. That account is `payouts` by default: during an upgrade, processes of the previous release insert rows of
 * payouts without this column.
 */
export const ledger: Migration = {
  async up(database: Kysely<unknown>): Promise<void> {
    const { schema } = database;
    // Payouts lock these tables too. To avoid a deadlock with a payout, takes all locks of this migration and the next
    // one here, at once.
    await lockTables(database, ['wallets', 'payouts', 'transactions']);
    // Uses a statement for each column, because SQLite can add only one column per statement.
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
