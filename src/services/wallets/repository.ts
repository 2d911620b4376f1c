import type { Selectable } from 'kysely';
import type { Tenant } from '../identity.js';
import { ownedBy } from '../owned-by.js';
import { rangeOf, type Page, type Paging } from '../../rest/paging.js';
import type { ServicesDatabase } from '../services-database.js';
import type { ServicesTables } from '../tables.js';
import type { Wallet } from './schema.js';

/** The merchant's wallets, newest first. */
export async function listWallets(database: ServicesDatabase, tenant: Tenant, paging: Paging): Promise<Page<Wallet>> {
  const { offset, limit } = rangeOf(paging);
  const owned = database.selectFrom('wallets').where(ownedBy(tenant));
  const { total } = await owned.select((it) => it.fn.countAll<number>().as('total')).executeTakeFirstOrThrow();
  const rows = await owned.selectAll().orderBy('sequence', 'desc').offset(offset).limit(limit).execute();
  return { items: rows.map(toWallet), totalRecords: total };
}

/** One wallet of the merchant. */
export async function findWallet(database: ServicesDatabase, tenant: Tenant, id: string): Promise<Wallet | null> {
  const row = await database
    .selectFrom('wallets')
    .selectAll()
    .where(ownedBy(tenant))
    .where('id', '=', id)
    .executeTakeFirst();
  return row === undefined ? null : toWallet(row);
}

/** The wallet that pays where none is named. */
export async function findDefaultWallet(
  database: ServicesDatabase,
  tenant: Tenant,
  currency: string,
): Promise<Wallet | null> {
  const row = await database
    .selectFrom('wallets')
    .selectAll()
    .where(ownedBy(tenant))
    .where('currency', '=', currency)
    .where('is_default', '=', 1)
    .executeTakeFirst();
  return row === undefined ? null : toWallet(row);
}

/**
 * Takes money out of a wallet, if there is enough: the condition and the change are one statement, so that nobody can
 * spend in between.
 * @returns the balance after it, or null where there is too little
 */
export async function debitWallet(
  database: ServicesDatabase,
  tenant: Tenant,
  id: string,
  amount: number,
): Promise<number | null> {
  const row = await database
    .updateTable('wallets')
    .set((it) => ({ balance: it('balance', '-', amount) }))
    .where(ownedBy(tenant))
    .where('id', '=', id)
    .where('balance', '>=', amount)
    .returning('balance')
    .executeTakeFirst();
  return row?.balance ?? null;
}

function toWallet(row: Selectable<ServicesTables['wallets']>): Wallet {
  return {
    id: row.id,
    currency: row.currency,
    balance: row.balance,
    isDefault: row.is_default === 1,
    createdAt: new Date(row.created_at).toISOString(),
  };
}
