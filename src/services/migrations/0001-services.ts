import { sql, type CreateTableBuilder, type Kysely, type Migration } from '../../database/kysely.js';
import { addSequence } from '../../database/dialects.js';

const largestAmount = sql.lit(Number.MAX_SAFE_INTEGER);
const owner = ['merchant_id', 'environment'] as const;

/** The first tables of the services. Their constraints enforce the rules about money, in addition to the code. */
export const services: Migration = {
  async up(database: Kysely<unknown>): Promise<void> {
    const { schema } = database;
    const table = <Name extends string>(name: Name, number = 'sequence') =>
      owned(addSequence(database, schema.createTable(name), number));
    const index = (name: string, table: string, columns: readonly string[]) =>
      schema
        .createIndex(name)
        .on(table)
        .columns([...columns]);

    await table('wallets')
      .addColumn('id', 'text', (column) => column.notNull().unique())
      .addColumn('currency', 'text', (column) => column.notNull())
      .addColumn('balance', 'bigint', (column) => column.notNull())
      .addColumn('is_default', 'integer', (column) => column.notNull().check(sql`is_default in (0, 1)`))
      .addCheckConstraint('wallets_balance', sql`balance between 0 and ${largestAmount}`)
      .execute();
    await index('wallets_default', 'wallets', [...owner, 'currency'])
      .unique()
      .where(sql.ref('is_default'), '=', sql.lit(1))
      .execute();
    await index('wallets_list', 'wallets', [...owner, 'sequence']).execute();

    await table('payouts')
      .addColumn('id', 'text', (column) => column.notNull().unique())
      .addColumn('wallet_id', 'text', (column) => column.notNull().references('wallets.id'))
      .addColumn('status', 'text', (column) => column.notNull())
      .addColumn('amount', 'bigint', (column) => column.notNull())
      .addColumn('currency', 'text', (column) => column.notNull())
      .addColumn('reference', 'text', (column) => column.notNull().unique())
      .addColumn('destination_bank_code', 'text')
      .addColumn('destination_account_number', 'text')
      .addColumn('destination_account_name', 'text')
      .addColumn('recipient', 'text')
      .addColumn('remarks', 'text')
      .addColumn('failure_reason', 'text')
      .addColumn('due_at', 'bigint')
      .addColumn('updated_at', 'bigint', (column) => column.notNull())
      .addCheckConstraint('payouts_status', sql`status in ('pending', 'processing', 'successful', 'failed')`)
      .addCheckConstraint('payouts_due', sql`(due_at is null) = (status in ('successful', 'failed'))`)
      .addCheckConstraint('payouts_reason', sql`(failure_reason is null) = (status <> 'failed')`)
      .addCheckConstraint('payouts_amount', sql`amount between 1 and ${largestAmount}`)
      .addCheckConstraint('payouts_destination', sql`(recipient is null) = (destination_account_number is not null)`)
      .execute();
    await index('payouts_list', 'payouts', [...owner, 'sequence']).execute();
    await index('payouts_due_at', 'payouts', ['due_at']).where(sql.ref('due_at'), 'is not', null).execute();

    await table('transactions', 'id')
      .addColumn('wallet_id', 'text', (column) => column.notNull().references('wallets.id'))
      .addColumn('payout_id', 'text', (column) => column.references('payouts.id'))
      .addColumn('type', 'text', (column) => column.notNull().check(sql`type in ('credit', 'debit')`))
      .addColumn('status', 'text', (column) => column.notNull())
      .addColumn('amount', 'bigint', (column) => column.notNull())
      .addColumn('currency', 'text', (column) => column.notNull())
      .addColumn('reference', 'text', (column) => column.notNull().unique())
      .addColumn('balance_after', 'bigint', (column) => column.notNull())
      .addCheckConstraint('transactions_status', sql`status in ('pending', 'successful', 'reversed')`)
      .addCheckConstraint('transactions_amount', sql`amount between 1 and ${largestAmount}`)
      .addCheckConstraint('transactions_balance_after', sql`balance_after between 0 and ${largestAmount}`)
      // A payout has at most one debit and at most one refund.
      .addUniqueConstraint('transactions_once', ['payout_id', 'type'])
      .execute();
    await index('transactions_list', 'transactions', [...owner, 'id']).execute();

    await table('customers')
      .addColumn('id', 'text', (column) => column.notNull().unique())
      .addColumn('email', 'text', (column) => column.notNull())
      .addColumn('first_name', 'text', (column) => column.notNull())
      .addColumn('last_name', 'text', (column) => column.notNull())
      .addColumn('phone', 'text')
      .addColumn('search_text', 'text', (column) => column.notNull())
      .addColumn('updated_at', 'bigint', (column) => column.notNull())
      .addUniqueConstraint('customers_email', [...owner, 'email'])
      .execute();
    await index('customers_list', 'customers', [...owner, 'sequence']).execute();

    await owned(schema.createTable('answers'))
      .addColumn('key', 'text', (column) => column.notNull())
      .addColumn('fingerprint', 'text', (column) => column.notNull())
      .addColumn('status', 'integer', (column) => column.notNull())
      .addColumn('body', 'text', (column) => column.notNull())
      .addPrimaryKeyConstraint('answers_key', [...owner, 'key'])
      .execute();
    await index('answers_age', 'answers', ['created_at']).execute();
  },
};

function owned<Table extends string, Column extends string>(table: CreateTableBuilder<Table, Column>) {
  return table
    .addColumn('merchant_id', 'text', (column) => column.notNull())
    .addColumn('environment', 'text', (column) => column.notNull().check(sql`environment in ('live', 'test')`))
    .addColumn('created_at', 'bigint', (column) => column.notNull());
}
