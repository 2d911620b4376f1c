import { type DatabaseClock, takeLock } from '../../database/dialects.js';
import { sql } from '../../database/kysely.js';
import { Refusal } from '../../rest/refusal.js';
import type { Environment, Tenant } from '../assertion-verifier.js';
import { findStoredResponse, storeResponse } from '../idempotency/repository.js';
import { requestFingerprint } from '../idempotency/request-fingerprint.js';
import type { RouteContext } from '../routes.js';
import { lockListForInsert, type ServicesDatabase, type ServicesTransaction } from '../services-database.js';
import { type EntryRow, type Movement, moveMoney } from './move-money.js';
import type { WalletRow } from './open-wallet.js';

/**
 * An operator's order to move money from the operator's account (`float`) into a wallet (`credit`), or back (`debit`).
 */
export interface OperatorMovement {
  readonly type: Movement['type'];
  readonly amount: number;
  readonly currency: string;
  readonly environment: Environment;
  /** The merchant that must own the wallet; null accepts any merchant. */
  readonly merchantId: string | null;
  /**
   * The operator's reference, unique among all ledger entries. Repeated orders with the same reference move money only
   * once.
   */
  readonly reference: string;
  readonly reason: string;
  readonly actor: string;
}

/**
 * The ledger entry of a movement. `isRepeated` is true if an earlier order with the same reference created the entry.
 */
export interface OperatorEntry {
  readonly entry: EntryRow;
  readonly isRepeated: boolean;
}

/** Callbacks of `moveByOperator`. They are not called if an earlier order has the same reference. */
interface MovementSteps {
  /** Called before the money moves. Throws a Refusal if this order must not move the money. */
  readonly beforeMove: () => void;
  /** Called in the transaction that moves the money. */
  readonly onMoved: (transaction: ServicesTransaction, entry: EntryRow) => Promise<void>;
}

/** A movement, with the id of its wallet. */
type WalletMovement = OperatorMovement & { readonly walletId: string };

/** Rejections that are stored under the order's reference, with their messages. */
const storedRefusals = {
  insufficient_balance: 'Insufficient wallet balance',
  balance_too_large: `The balance plus the payouts in progress would exceed ${Number.MAX_SAFE_INTEGER}`,
} as const;
type RefusalCode = keyof typeof storedRefusals;

/**
 * A reference is unique across all merchants and environments, so rejections are stored under this one owner. Its
 * merchant id is empty, so it is not a real merchant.
 */
const ofAllWallets: Tenant = { merchantId: '', environment: 'live' };

/**
 * Carries out an operator's order, once per reference. A rejection because of the balance is stored too: a delayed copy
 * of the order must not move money after the operator has received the rejection.
 * @throws Refusal 422 `wrong_environment`, `wrong_currency`, `wrong_merchant`, `insufficient_balance` or
 * `balance_too_large`; 409 `reference_taken` if the reference belongs to another movement, or to this movement with
 * another reason; and what `beforeMove` throws
 */
export async function moveByOperator(
  { database, clock }: Pick<RouteContext, 'database' | 'clock'>,
  wallet: WalletRow,
  order: OperatorMovement,
  { beforeMove, onMoved }: MovementSteps,
): Promise<OperatorEntry> {
  const tenant = ownerOf(wallet, order);
  const movement = { ...order, walletId: wallet.id };
  const outcome = await database.transaction().execute(async (transaction): Promise<OperatorEntry | RefusalCode> => {
    await takeLock(transaction, `reference ${order.reference}`);
    const earlier = await findEarlier(transaction, tenant, movement);
    if (earlier !== null) return typeof earlier === 'string' ? earlier : { entry: earlier, isRepeated: true };
    beforeMove();
    const made = await move(transaction, clock, tenant, movement);
    if (typeof made !== 'string') {
      await onMoved(transaction, made);
      return { entry: made, isRepeated: false };
    }
    await storeRefusal(transaction, clock, tenant, movement, made);
    return made;
  });
  if (typeof outcome !== 'string') return outcome;
  const message = `${storedRefusals[outcome]}. The reference ${order.reference} cannot be used again: use a new reference for the next attempt`;
  throw unprocessable('amount', message, outcome);
}

/**
 * Returns the result of an earlier order with the same reference; null if there was no earlier order.
 * @throws Refusal 409 `reference_taken` if the reference belongs to another movement, or to this movement with another
 * reason
 */
async function findEarlier(
  transaction: ServicesTransaction,
  tenant: Tenant,
  movement: WalletMovement,
): Promise<EntryRow | RefusalCode | null> {
  const { walletId, type, amount, reason, reference } = movement;
  const entry = await transaction
    .selectFrom('transactions')
    .selectAll()
    .where('reference', '=', reference)
    .executeTakeFirst();
  if (entry !== undefined) {
    const isSame =
      entry.counter_account === 'float' &&
      entry.wallet_id === walletId &&
      entry.type === type &&
      entry.amount === amount;
    if (!isSame) throw referenceTaken(reference);
    if (entry.reason !== reason) throw movedForAnotherReason(entry);
    return entry;
  }
  // Processes of the previous release store rejections only under the wallet's owner.
  const kept =
    (await findStoredResponse(transaction, tenant, keyOf(movement))) ??
    (await findStoredResponse(transaction, ofAllWallets, keyOf(movement)));
  if (kept === null) return null;
  if (kept.fingerprint !== fingerprintOf(movement)) throw referenceTaken(reference);
  return (kept.body as { readonly code: RefusalCode }).code;
}

async function move(
  transaction: ServicesTransaction,
  clock: DatabaseClock,
  tenant: Tenant,
  { walletId, type, amount, currency, reference, reason, actor }: WalletMovement,
): Promise<EntryRow | RefusalCode> {
  await lockListForInsert(transaction, tenant);
  await sql`savepoint movement`.execute(transaction);
  const between = { walletId, type, amount, currency, counterAccount: 'float' } as const;
  const moved = await moveMoney(transaction, tenant, between, () => ({
    ...({ payoutId: null, status: 'successful', createdAt: clock.now() } as const),
    ...{ reference, reason, actor },
  }));
  if (moved === null) return type === 'debit' ? 'insufficient_balance' : 'balance_too_large';
  if (type === 'debit' || (await hasRoomForRefunds(transaction, moved.entry))) return moved.entry;
  await sql`rollback to savepoint movement`.execute(transaction);
  return 'balance_too_large';
}

/**
 * Stores a rejection in the table of responses, under an idempotency key. The key contains a space, so it cannot equal
 * the key of a merchant's request. The rejection is also stored under the wallet's owner, where processes of the
 * previous release search for it during an upgrade.
 */
async function storeRefusal(
  transaction: ServicesTransaction,
  clock: DatabaseClock,
  tenant: Tenant,
  movement: WalletMovement,
  code: RefusalCode,
): Promise<void> {
  const kept = { fingerprint: fingerprintOf(movement), status: 422, body: { code } };
  for (const owner of [ofAllWallets, tenant])
    await storeResponse(transaction, owner, keyOf(movement), kept, clock.now());
}

function keyOf({ reference }: WalletMovement): string {
  return `operator ${reference}`;
}

function fingerprintOf({ walletId, type, amount, reason }: WalletMovement): string {
  return requestFingerprint(`operator ${type}`, { walletId, amount, reason });
}

/**
 * Returns the wallet's owner. Rejects an order whose environment, currency or merchant differs from the wallet's,
 * because such an order probably has a wrong wallet id.
 */
function ownerOf(wallet: WalletRow, { environment, currency, merchantId }: OperatorMovement): Tenant {
  const { merchant_id: owner, environment: actual } = wallet;
  if (environment !== actual)
    throw unprocessable(
      'environment',
      `The wallet is in the environment ${actual}, not in ${environment}`,
      'wrong_environment',
    );
  if (currency !== wallet.currency)
    throw unprocessable('currency', `The wallet is in ${wallet.currency}, not in ${currency}`, 'wrong_currency');
  if (merchantId !== null && merchantId !== owner)
    throw unprocessable(
      'merchantId',
      `The wallet belongs to the merchant ${owner}, not to ${merchantId}`,
      'wrong_merchant',
    );
  return { merchantId: owner, environment: actual };
}

function referenceTaken(reference: string): Refusal {
  return new Refusal(
    409,
    `The reference ${reference} already belongs to a different movement, so nothing was moved: use a new reference, or repeat the earlier request unchanged`,
    [],
    'reference_taken',
  );
}

/**
 * Creates the refusal of an order that repeats an earlier movement under the same reference, but with another reason.
 * The sender must learn that the money was already moved, because a new reference would move the money twice.
 */
function movedForAnotherReason({ reference, reason, created_at: at }: EntryRow): Refusal {
  const earlier = `under the reference ${reference} at ${new Date(at).toISOString()}, with the reason "${reason ?? ''}"`;
  return new Refusal(
    409,
    `This money was already moved ${earlier}, so nothing was moved now. If you meant the same movement, do not send it under a new reference: the money would move twice`,
    [],
    'reference_taken',
  );
}

/**
 * Returns true if the balance plus all payouts in progress is a safe integer: if these payouts fail, the wallet has
 * room for their refunds. The wallet is locked, so the sum cannot grow before the commit.
 */
async function hasRoomForRefunds(transaction: ServicesDatabase, entry: EntryRow): Promise<boolean> {
  const { underway } = await transaction
    .selectFrom('payouts')
    .select((it) => it.fn.sum<number | string | null>('amount').as('underway'))
    .where('wallet_id', '=', entry.wallet_id)
    .where('due_at', 'is not', null)
    .executeTakeFirstOrThrow();
  return entry.balance_after + Number(underway) <= Number.MAX_SAFE_INTEGER;
}

function unprocessable(path: string, message: string, code: string): Refusal {
  return new Refusal(422, message, [{ path, message }], code);
}
