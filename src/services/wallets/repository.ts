import type { Selectable } from '../../database/kysely.js';
import { type Page, type Paging, rangeOf } from '../../rest/paging.js';
import { Refusal } from '../../rest/refusal.js';
import type { Tenant } from '../assertion-verifier.js';
import { ownedBy, type ServicesDatabase } from '../services-database.js';
import type { ServicesTables } from '../tables.js';
import type { Wallet, WalletsQuery } from './schema.js';

/**
 * Lists the merchant's wallets that match the query, newest first.
 * @throws Refusal 404 if the query parameter `up_to` names an unknown wallet
 */
export async function listWallets(
  database: ServicesDatabase,
  tenant: Tenant,
  query: WalletsQuery,
  paging: Paging,
): Promise<Page<Wallet>> {
  let wanted = database.selectFrom('wallets').where(ownedBy(tenant));
  if (query.currency !== undefined) wanted = wanted.where('currency', '=', query.currency);
  if (query.up_to !== undefined) {
    const last = await rowOf(database, tenant, query.up_to.toLowerCase());
    wanted = wanted.where('sequence', '<=', last.sequence);
  }
  const { offset, limit } = rangeOf(paging);
  const { total } = await wanted.select((it) => it.fn.countAll<number>().as('total')).executeTakeFirstOrThrow();
  const rows = await wanted.selectAll().orderBy('sequence', 'desc').offset(offset).limit(limit).execute();
  return { items: rows.map(toWallet), totalRecords: total };
}

/**
 * Returns one wallet of the merchant.
 * @throws Refusal 404 if the merchant has no wallet with this id
 */
export async function requireWallet(database: ServicesDatabase, tenant: Tenant, id: string): Promise<Wallet> {
  return toWallet(await rowOf(database, tenant, id));
}

function rowOf(database: ServicesDatabase, tenant: Tenant, id: string) {
  const wanted = database.selectFrom('wallets').selectAll().where(ownedBy(tenant)).where('id', '=', id);
  return wanted.executeTakeFirstOrThrow(() => Refusal.notFound('Wallet'));
}

/**
 * Finds the merchant's default wallet in a currency, which pays payouts without a wallet id; null if there is no such
 * wallet.
 */
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

function toWallet(row: Selectable<ServicesTables['wallets']>): Wallet {
  return {
    id: row.id,
    currency: row.currency,
    balance: row.balance,
    isDefault: row.is_default === 1,
    createdAt: new Date(row.created_at).toISOString(),
  };
}
