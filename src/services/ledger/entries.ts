import { rangeOf, type Page, type Paging } from '../../rest/paging.js';
import type { ServicesDatabase } from '../services-database.js';
import type { EntryRow } from './move-money.js';

/** The entries of a wallet, newest first: their numbers are given while the wallet is locked, so none turns up behind a newer one. */
export async function listEntries(
  database: ServicesDatabase,
  wallet: { readonly id: string; readonly merchant_id: string; readonly environment: string },
  paging: Paging,
): Promise<Page<EntryRow>> {
  const wanted = database
    .selectFrom('transactions')
    // Of the merchant too: the index begins with it.
    .where('merchant_id', '=', wallet.merchant_id)
    .where('environment', '=', wallet.environment as EntryRow['environment'])
    .where('wallet_id', '=', wallet.id);
  const { offset, limit } = rangeOf(paging);
  const { total } = await wanted.select((it) => it.fn.countAll<number>().as('total')).executeTakeFirstOrThrow();
  const items = await wanted.selectAll().orderBy('id', 'desc').offset(offset).limit(limit).execute();
  return { items, totalRecords: total };
}
