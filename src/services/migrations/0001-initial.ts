import { sql, type CreateTableBuilder, type Kysely, type Migration } from 'kysely';

const largestAmount = sql.lit(Number.MAX_SAFE_INTEGER);

/** Wallets, payouts, transactions and customers. The rules about money are also the database's own. */
export const initial: Migration = {
  async up(database: Kysely<unknown>): Promise<void> {
    const { schema } = database;

    await owned(schema.createTable('wallets'))
      .addColumn('sequence', 'integer', (column) => column.primaryKey().autoIncrement())
      .addColumn('id', 'text', (column) => column.notNull().unique())
      .addColumn('currency', 'text', (column) => column.notNull())
      .addColumn('balance', 'integer', (column) => column.notNull())
      .addColumn('is_default', 'integer', (column) => column.notNull().check(sql`is_default in (0, 1)`))
      .addCheckConstraint('wallets_balance', sql`balance between 0 and ${largestAmount}`)
      .execute();
    await schema
      .createIndex('wallets_default')
      .on('wallets')
      .columns(['merchant_id', 'environment', 'currency'])
      .unique()
      .where(sql.ref('is_default'), '=', sql.lit(1))
      .execute();
    await schema
      .createIndex('wallets_list')
      .on('wallets')
      .columns(['merchant_id', 'environment', 'sequence'])
      .execute();

    await owned(schema.createTable('payouts'))
      .addColumn('sequence', 'integer', (column) => column.primaryKey().autoIncrement())
      .addColumn('id', 'text', (column) => column.notNull().unique())
      .addColumn('wallet_id', 'text', (column) => column.notNull().references('wallets.id'))
      .addColumn('status', 'text', (column) => column.notNull())
      .addColumn('amount', 'integer', (column) => column.notNull())
      .addColumn('currency', 'text', (column) => column.notNull())
      .addColumn('reference', 'text', (column) => column.notNull().unique())
      .addColumn('destination_bank_code', 'text')
      .addColumn('destination_account_number', 'text')
      .addColumn('destination_account_name', 'text')
      .addColumn('recipient', 'text')
      .addColumn('remarks', 'text')
      .addCheckConstraint('payouts_amount', sql`amount between 1 and ${largestAmount}`)
      .addCheckConstraint('payouts_destination', sql`(recipient is null) = (destination_account_number is not null)`)
      .execute();
    await schema
      .createIndex('payouts_list')
      .on('payouts')
      .columns(['merchant_id', 'environment', 'sequence'])
      .execute();

    await owned(schema.createTable('transactions'))
      .addColumn('id', 'integer', (column) => column.primaryKey().autoIncrement())
      .addColumn('wallet_id', 'text', (column) => column.notNull().references('wallets.id'))
      .addColumn('payout_id', 'text', (column) => column.references('payouts.id'))
      .addColumn('type', 'text', (column) => column.notNull().check(sql`type in ('credit', 'debit')`))
      .addColumn('status', 'text', (column) => column.notNull())
      .addColumn('amount', 'integer', (column) => column.notNull())
      .addColumn('currency', 'text', (column) => column.notNull())
      .addColumn('reference', 'text', (column) => column.notNull().unique())
      .addColumn('balance_after', 'integer', (column) => column.notNull())
      .addCheckConstraint('transactions_amount', sql`amount between 1 and ${largestAmount}`)
      .addCheckConstraint('transactions_balance_after', sql`balance_after between 0 and ${largestAmount}`)
      .execute();
    await schema
      .createIndex('transactions_list')
      .on('transactions')
      .columns(['merchant_id', 'environment', 'id'])
      .execute();

    await owned(schema.createTable('customers'))
      .addColumn('sequence', 'integer', (column) => column.primaryKey().autoIncrement())
      .addColumn('id', 'text', (column) => column.notNull().unique())
      .addColumn('email', 'text', (column) => column.notNull())
      .addColumn('first_name', 'text', (column) => column.notNull())
      .addColumn('last_name', 'text', (column) => column.notNull())
      .addColumn('phone', 'text')
      .addColumn('updated_at', 'integer', (column) => column.notNull())
      .addUniqueConstraint('customers_email', ['merchant_id', 'environment', 'email'])
      .execute();
    await schema
      .createIndex('customers_list')
      .on('customers')
      .columns(['merchant_id', 'environment', 'sequence'])
      .execute();
  },
};

function owned<Table extends string>(table: CreateTableBuilder<Table>) {
  return table
    .addColumn('merchant_id', 'text', (column) => column.notNull())
    .addColumn('environment', 'text', (column) => column.notNull().check(sql`environment in ('live', 'test')`))
    .addColumn('created_at', 'integer', (column) => column.notNull());
}
