import type { SqlTime } from '../../database/dialects.js';
import type { Selectable } from '../../database/kysely.js';
import { type Page, type Paging, rangeOf } from '../../rest/paging.js';
import { Refusal } from '../../rest/refusal.js';
import type { Tenant } from '../assertion-verifier.js';
import { createdRangeOf } from '../list-query.js';
import { lastCompleteNumber, ownedBy, ownerColumns, type ServicesDatabase } from '../services-database.js';
import type { ServicesTables } from '../tables.js';
import { requireWallet } from '../wallets/repository.js';
import { hasReference } from './merchant-reference.js';
import type { Payout, PayoutsQuery } from './schema.js';

/** A payout to insert. The payout worker processes it for the first time at `dueAt`. */
export type NewPayout = Omit<Payout, 'status' | 'failureReason' | 'createdAt' | 'updatedAt'> & {
  readonly createdAt: SqlTime;
  readonly dueAt: SqlTime;
};

/**
 * Lists the merchant's payouts that match the query, newest first.
 * @throws Refusal 404 for an unknown wallet, or if the query parameter `up_to` names an unknown payout
 */
export async function listPayouts(
  database: ServicesDatabase,
  tenant: Tenant,
  query: PayoutsQuery,
  paging: Paging,
): Promise<Page<Payout>> {
  const { from, to } = createdRangeOf(query);
  let wanted = database.selectFrom('payouts').where(ownedBy(tenant));
  if (query.status !== undefined) wanted = wanted.where('status', '=', query.status);
  if (query.reference !== undefined) wanted = wanted.where(hasReference(query.reference));
  if (query.walletId !== undefined) {
    const wallet = await requireWallet(database, tenant, query.walletId.toLowerCase());
    wanted = wanted.where('wallet_id', '=', wallet.id);
  }
  if (from !== null) wanted = wanted.where('created_at', '>=', from);
  if (to !== null) wanted = wanted.where('created_at', '<=', to);
  if (query.up_to !== undefined) {
    const last = await rowOf(database, tenant, query.up_to.toLowerCase());
    if (last === undefined) throw Refusal.notFound('Payout');
    wanted = wanted.where('sequence', '<=', last.sequence);
  }
  const complete = await lastCompleteNumber(database, tenant, 'payouts');
  if (complete !== null) wanted = wanted.where('sequence', '<=', complete);
  const { offset, limit } = rangeOf(paging);
  const { total } = await wanted.select((it) => it.fn.countAll<number>().as('total')).executeTakeFirstOrThrow();
  const rows = await wanted.selectAll().orderBy('sequence', 'desc').offset(offset).limit(limit).execute();
  return { items: rows.map(toPayout), totalRecords: total };
}

/** Finds one payout of the merchant; null if the merchant has no payout with this id. */
export async function findPayout(database: ServicesDatabase, tenant: Tenant, id: string): Promise<Payout | null> {
  const row = await rowOf(database, tenant, id);
  return row === undefined ? null : toPayout(row);
}

function rowOf(database: ServicesDatabase, tenant: Tenant, id: string) {
  return database.selectFrom('payouts').selectAll().where(ownedBy(tenant)).where('id', '=', id).executeTakeFirst();
}

/** Inserts a pending payout. Call this in the database transaction that debits the wallet. */
export async function insertPayout(database: ServicesDatabase, tenant: Tenant, payout: NewPayout): Promise<Payout> {
  const row = await database
    .insertInto('payouts')
    .values({
      ...ownerColumns(tenant),
      id: payout.id,
      wallet_id: payout.walletId,
      status: 'pending',
      amount: payout.amount,
      currency: payout.currency,
      reference: payout.reference,
      merchant_reference: payout.merchantReference,
      destination_bank_code: payout.destinationBankCode,
      destination_account_number: payout.destinationAccountNumber,
      destination_account_name: payout.destinationAccountName,
      recipient: payout.recipient,
      remarks: payout.remarks,
      failure_reason: null,
      due_at: payout.dueAt,
      created_at: payout.createdAt,
      updated_at: payout.createdAt,
    })
    .returningAll()
    .executeTakeFirstOrThrow();
  return toPayout(row);
}

function toPayout(row: Selectable<ServicesTables['payouts']>): Payout {
  return {
    id: row.id,
    walletId: row.wallet_id,
    status: row.status,
    amount: row.amount,
    currency: row.currency,
    reference: row.reference,
    merchantReference: row.merchant_reference,
    destinationBankCode: row.destination_bank_code,
    destinationAccountNumber: row.destination_account_number,
    destinationAccountName: row.destination_account_name,
    recipient: row.recipient,
    remarks: row.remarks,
    failureReason: row.failure_reason,
    createdAt: new Date(row.created_at).toISOString(),
    updatedAt: new Date(row.updated_at).toISOString(),
  };
}
