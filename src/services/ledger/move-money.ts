import type { SqlTime } from '../../database/dialects.js';
import type { Selectable } from '../../database/kysely.js';
import type { Tenant } from '../assertion-verifier.js';
import { ownedBy, ownerColumns, type ServicesDatabase } from '../services-database.js';
import type { ServicesTables } from '../tables.js';

/** The account on the other side of a movement. Each pair of environment and currency has its own accounts. */
type CounterAccount = EntryRow['counter_account'];

/** One row of the ledger, as stored in the database. */
export type EntryRow = Selectable<ServicesTables['transactions']>;

/** Money that moves between a wallet and another account. */
export interface Movement {
  readonly walletId: string;
  /** `credit` adds money to the wallet, `debit` takes money from it. */
  readonly type: EntryRow['type'];
  /** Amount in minor units, a positive safe integer. */
  readonly amount: number;
  readonly currency: string;
  readonly counterAccount: CounterAccount;
}

/** The columns of a ledger entry that the movement itself does not contain. */
export interface EntryDetails {
  readonly payoutId: string | null;
  readonly status: EntryRow['status'];
  /** Reference of the entry, unique among all entries. */
  readonly reference: string;
  /** Creation time in milliseconds since 1970. */
  readonly createdAt: number | SqlTime;
  /** Why an operator moved the money; null for a payout. */
  readonly reason: string | null;
  /** The name of the operator who moved the money; null for a payout. */
  readonly actor: string | null;
}

/**
 * Changes a wallet's balance and inserts the ledger entry; no other code changes a balance. The two writes must commit
 * together, so call this in a database transaction. Each entry names both accounts, so all accounts together always add
 * up to zero.
 * @param detailsOf returns the other columns of the entry. It is called after the wallet was locked and its balance
 *   changed. It can insert rows to which the entry refers.
 * @returns the entry and its details, or null if the balance is too small for the debit, or would be too large after
 * the credit
 */
export async function moveMoney<Details extends EntryDetails>(
  transaction: ServicesDatabase,
  tenant: Tenant,
  movement: Movement,
  detailsOf: () => Details | Promise<Details>,
): Promise<{ readonly entry: EntryRow; readonly details: Details } | null> {
  const balanceAfter = await changeBalance(transaction, tenant, movement);
  if (balanceAfter === null) return null;
  const details = await detailsOf();
  const { payoutId, status, reference, createdAt, reason, actor } = details;
  const entry = await transaction
    .insertInto('transactions')
    .values({
      ...ownerColumns(tenant),
      wallet_id: movement.walletId,
      payout_id: payoutId,
      type: movement.type,
      status,
      amount: movement.amount,
      currency: movement.currency,
      counter_account: movement.counterAccount,
      reference,
      balance_after: balanceAfter,
      reason,
      actor,
      created_at: createdAt,
    })
    .returningAll()
    .executeTakeFirstOrThrow();
  return { entry, details };
}

/**
 * Checks and changes the balance in one statement, so that no other transaction can spend the money in between. Also
 * locks the wallet. Returns the new balance; null if it would be negative or too large.
 */
async function changeBalance(
  transaction: ServicesDatabase,
  tenant: Tenant,
  { walletId, type, amount }: Movement,
): Promise<number | null> {
  const sign = type === 'debit' ? '-' : '+';
  const wanted = transaction
    .updateTable('wallets')
    .set((it) => ({ balance: it('balance', sign, amount) }))
    .where(ownedBy(tenant))
    .where('id', '=', walletId)
    .returning('balance');
  const possible =
    type === 'debit'
      ? wanted.where('balance', '>=', amount)
      : wanted.where('balance', '<=', Number.MAX_SAFE_INTEGER - amount);
  const row = await possible.executeTakeFirst();
  return row?.balance ?? null;
}
