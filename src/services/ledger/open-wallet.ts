import { randomUUID } from 'node:crypto';
import type { Moment } from '../../database/dialects.js';
import type { Selectable } from '../../database/kysely.js';
import type { Tenant } from '../assertion-verifier.js';
import { ownedBy, ownerColumns, type ServicesDatabase } from '../services-database.js';
import type { ServicesTables } from '../tables.js';

/** A wallet, as it is stored. */
export type WalletRow = Selectable<ServicesTables['wallets']>;

/** A wallet to make. */
export interface NewWallet {
  /** Null: one is made up. */
  readonly id: string | null;
  readonly currency: string;
  /** Whether payouts that name no wallet shall be paid from it. The first one of a currency is the default in any case. */
  readonly isDefault: boolean;
  readonly createdBy: string;
  /** Milliseconds since 1970. */
  readonly createdAt: number | Moment;
}

/** A wallet, and whether it was there before. */
export interface OpenedWallet {
  readonly wallet: WalletRow;
  readonly existed: boolean;
}

/**
 * Makes an empty wallet: the only way to one. A wallet with the same id, or a default one where that is asked for, is returned as it
 * is; whether it is the one that was meant is for the caller to see.
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
      // Two who make the first wallet at once: the second one waits, and finds it.
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
