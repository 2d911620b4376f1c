import type { Selectable } from 'kysely';
import type { Tenant } from '../identity.js';
import { ownedBy, ownerColumns } from '../owned-by.js';
import { rangeOf, type Page, type Paging } from '../../rest/paging.js';
import type { ServicesDatabase } from '../services-database.js';
import type { ServicesTables } from '../tables.js';
import type { Payout } from './schema.js';

/** A payout to record. */
export type NewPayout = Omit<Payout, 'status' | 'createdAt'> & { readonly createdAt: number };

/** The merchant's payouts, newest first. */
export async function listPayouts(database: ServicesDatabase, tenant: Tenant, paging: Paging): Promise<Page<Payout>> {
  const { offset, limit } = rangeOf(paging);
  const owned = database.selectFrom('payouts').where(ownedBy(tenant));
  const { total } = await owned.select((it) => it.fn.countAll<number>().as('total')).executeTakeFirstOrThrow();
  const rows = await owned.selectAll().orderBy('sequence', 'desc').offset(offset).limit(limit).execute();
  return { items: rows.map(toPayout), totalRecords: total };
}

/** One payout of the merchant. */
export async function findPayout(database: ServicesDatabase, tenant: Tenant, id: string): Promise<Payout | null> {
  const row = await database
    .selectFrom('payouts')
    .selectAll()
    .where(ownedBy(tenant))
    .where('id', '=', id)
    .executeTakeFirst();
  return row === undefined ? null : toPayout(row);
}

/** Adds a payout; belongs in the database transaction that debits the wallet. */
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
      destination_bank_code: payout.destinationBankCode,
      destination_account_number: payout.destinationAccountNumber,
      destination_account_name: payout.destinationAccountName,
      recipient: payout.recipient,
      remarks: payout.remarks,
      created_at: payout.createdAt,
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
    destinationBankCode: row.destination_bank_code,
    destinationAccountNumber: row.destination_account_number,
    destinationAccountName: row.destination_account_name,
    recipient: row.recipient,
    remarks: row.remarks,
    createdAt: new Date(row.created_at).toISOString(),
  };
}
