import { randomUUID } from 'node:crypto';
import type { SqlTime } from '../../database/dialects.js';
import type { Selectable } from '../../database/kysely.js';
import type { Tenant } from '../assertion-verifier.js';
import { ownedBy, ownerColumns, type ServicesDatabase } from '../services-database.js';
import type { ServicesTables } from '../tables.js';

/** A wallet as stored in the database. */
export type WalletRow = Selectable<ServicesTables['wallets']>;

/** A wallet to create. */
export interface NewWallet {
  /** Id of the wallet; null for a random UUID. */
  readonly id: string | null;
  readonly currency: string;
  /** Whether payouts without a wallet id use this wallet. The first wallet in a currency is always the default. */
  readonly isDefault: boolean;
  readonly createdBy: string;
  /** Creation time in milliseconds since 1970. */
  readonly createdAt: number | SqlTime;
}

/** A wallet, and whether it existed before. */
export interface OpenedWallet {
  readonly wallet: WalletRow;
  readonly existed: boolean;
}

/**
 * Creates an empty wallet; no other code creates wallets. If a wallet with the same id exists, returns it unchanged. If
 * a default wallet is requested and one exists, returns the existing default wallet. The caller must check that the
 * returned wallet is the intended one.
 */
export async function openWallet(
  transaction: ServicesDatabase,
  tenant: Tenant,
  { id, currency, isDefault, createdBy, createdAt }: NewWallet,
): Promise<OpenedWallet> {
  if (id !== null) {
    const same = await transaction.selectFrom('wallets').selectAll().where('id', '=', id).executeTakeFirst();
    if (same !== undefined) return { wallet: same, existed: true };
  }
  const add = (asDefault: boolean) =>
    transaction
      .insertInto('wallets')
      .values({
        ...ownerColumns(tenant),
        id: id ?? randomUUID(),
        currency,
        balance: 0,
        is_default: asDefault ? 1 : 0,
        created_by: createdBy,
        created_at: createdAt,
      })
      // If two requests create the merchant's first wallet at the same time, one request waits here until the other
      // request commits. The waiting request then gets no row, because a default wallet exists.
      .onConflict((conflict) => conflict.doNothing())
      .returningAll()
      .executeTakeFirst();
  const first = await add(true);
  if (first !== undefined) return { wallet: first, existed: false };
  const other = isDefault ? undefined : await add(false);
  if (other !== undefined) return { wallet: other, existed: false };
  const existing = await transaction
    .selectFrom('wallets')
    .selectAll()
    .where((it) =>
      it.or([
        ...(id === null ? [] : [it('id', '=', id)]),
        it.and([ownedBy(tenant), it('currency', '=', currency), it('is_default', '=', 1)]),
      ]),
    )
    .orderBy('is_default', isDefault ? 'desc' : 'asc')
    .executeTakeFirstOrThrow();
  return { wallet: existing, existed: true };
}
