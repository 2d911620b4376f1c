import type { Selectable } from 'kysely';
import type { Tenant } from '../identity.js';
import { ownedBy, ownerColumns } from '../owned-by.js';
import { rangeOf, type Page, type Paging } from '../../rest/paging.js';
import type { ServicesDatabase } from '../services-database.js';
import type { ServicesTables } from '../tables.js';
import type { Transaction } from './schema.js';

/** A movement to record. */
export type NewTransaction = Omit<Transaction, 'id' | 'status' | 'createdAt'> & { readonly createdAt: number };

/** The merchant's transactions, newest first. */
export async function listTransactions(
  database: ServicesDatabase,
  tenant: Tenant,
  paging: Paging,
): Promise<Page<Transaction>> {
  const { offset, limit } = rangeOf(paging);
  const owned = database.selectFrom('transactions').where(ownedBy(tenant));
  const { total } = await owned.select((it) => it.fn.countAll<number>().as('total')).executeTakeFirstOrThrow();
  const rows = await owned.selectAll().orderBy('id', 'desc').offset(offset).limit(limit).execute();
  return { items: rows.map(toTransaction), totalRecords: total };
}

/** Adds a movement to the ledger; belongs in the database transaction that moves the balance. */
export async function recordTransaction(
  database: ServicesDatabase,
  tenant: Tenant,
  transaction: NewTransaction,
): Promise<void> {
  await database
    .insertInto('transactions')
    .values({
      ...ownerColumns(tenant),
      wallet_id: transaction.walletId,
      payout_id: transaction.payoutId,
      type: transaction.type,
      status: 'success',
      amount: transaction.amount,
      currency: transaction.currency,
      reference: transaction.reference,
      balance_after: transaction.balanceAfter,
      created_at: transaction.createdAt,
    })
    .execute();
}

function toTransaction(row: Selectable<ServicesTables['transactions']>): Transaction {
  return {
    id: row.id,
    amount: row.amount,
    currency: row.currency,
    type: row.type,
    status: row.status,
    reference: row.reference,
    walletId: row.wallet_id,
    payoutId: row.payout_id,
    balanceAfter: row.balance_after,
    createdAt: new Date(row.created_at).toISOString(),
  };
}
