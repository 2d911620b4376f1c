import type { Selectable } from '../../database/kysely.js';
import { type Page, type Paging, rangeOf } from '../../rest/paging.js';
import { Refusal } from '../../rest/refusal.js';
import type { Tenant } from '../assertion-verifier.js';
import { createdRangeOf } from '../list-query.js';
import { lastCompleteNumber, ownedBy, type ServicesDatabase } from '../services-database.js';
import type { ServicesTables } from '../tables.js';
import { requireWallet } from '../wallets/repository.js';
import type { Transaction, TransactionsQuery, TransactionStatus } from './schema.js';

/**
 * Lists the merchant's transactions that match the query, newest first. Ids are assigned while the wallet is locked. So
 * within a wallet, a transaction with a larger id moved money later.
 * @throws Refusal 404 for an unknown wallet, or if the query parameter `up_to` names an unknown transaction
 */
export async function listTransactions(
  database: ServicesDatabase,
  tenant: Tenant,
  query: TransactionsQuery,
  paging: Paging,
): Promise<Page<Transaction>> {
  const { from, to } = createdRangeOf(query);
  let wanted = database.selectFrom('transactions').where(ownedBy(tenant));
  if (query.type !== undefined) wanted = wanted.where('type', '=', query.type);
  if (query.status !== undefined) wanted = wanted.where('status', '=', query.status);
  if (query.walletId !== undefined) {
    const wallet = await requireWallet(database, tenant, query.walletId.toLowerCase());
    wanted = wanted.where('wallet_id', '=', wallet.id);
  }
  if (from !== null) wanted = wanted.where('created_at', '>=', from);
  if (to !== null) wanted = wanted.where('created_at', '<=', to);
  if (query.up_to !== undefined) {
    const last = await findTransaction(database, tenant, Number(query.up_to));
    if (last === null) throw Refusal.notFound('Transaction');
    wanted = wanted.where('id', '<=', last.id);
  }
  const complete = await lastCompleteNumber(database, tenant, 'transactions');
  if (complete !== null) wanted = wanted.where('id', '<=', complete);
  const { offset, limit } = rangeOf(paging);
  const { total } = await wanted.select((it) => it.fn.countAll<number>().as('total')).executeTakeFirstOrThrow();
  const rows = await wanted.selectAll().orderBy('id', 'desc').offset(offset).limit(limit).execute();
  return { items: rows.map(toTransaction), totalRecords: total };
}

/** Finds one transaction of the merchant; null if the merchant has no transaction with this id. */
export async function findTransaction(
  database: ServicesDatabase,
  tenant: Tenant,
  id: number,
): Promise<Transaction | null> {
  const row = await database
    .selectFrom('transactions')
    .selectAll()
    .where(ownedBy(tenant))
    .where('id', '=', id)
    .executeTakeFirst();
  return row === undefined ? null : toTransaction(row);
}

/** Sets the final status of the payouts' debits. Call this in the database transaction that ends the payouts. */
export async function setDebitStatus(
  database: ServicesDatabase,
  payoutIds: readonly string[],
  status: Exclude<TransactionStatus, 'pending'>,
): Promise<void> {
  if (payoutIds.length === 0) return;
  await database
    .updateTable('transactions')
    .set({ status })
    .where('payout_id', 'in', payoutIds)
    .where('type', '=', 'debit')
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
