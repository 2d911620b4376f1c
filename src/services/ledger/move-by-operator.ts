import { type DatabaseClock, waitForLock } from '../../database/dialects.js';
import { sql } from '../../database/kysely.js';
import { Refusal } from '../../rest/refusal.js';
import type { Environment, Tenant } from '../assertion-verifier.js';
import { findAnswer, keepAnswer } from '../idempotency/repository.js';
import { requestFingerprint } from '../idempotency/request-fingerprint.js';
import type { RouteContext } from '../routes.js';
import { joinAdding, type ServicesDatabase, type ServicesTransaction } from '../services-database.js';
import { type EntryRow, type Movement, moveMoney } from './move-money.js';
import type { WalletRow } from './open-wallet.js';

/** What an operator orders: money from the float into a wallet (`credit`), or back (`debit`). */
export interface OperatorMovement {
  readonly type: Movement['type'];
  readonly amount: number;
  readonly currency: string;
  readonly environment: Environment;
  /** Null: the wallet may belong to any merchant. */
  readonly merchantId: string | null;
  /** The operator's own, and no other entry's. Under it the movement happens once, however often it is ordered. */
  readonly reference: string;
  readonly reason: string;
  readonly actor: string;
}

/** The entry of a movement, and whether it was made by an earlier order. */
export interface OperatorEntry {
  readonly entry: EntryRow;
  readonly isRepeated: boolean;
}

/** A movement, and the wallet that it is about. */
type WalletMovement = OperatorMovement & { readonly walletId: string };

/** Why there was no money to move, or no room for it. */
const refusals = {
  insufficient_balance: 'Insufficient wallet balance',
  balance_too_large: `The balance, with the payouts that are under way, would be above ${Number.MAX_SAFE_INTEGER}`,
} as const;
type RefusalCode = keyof typeof refusals;

/**
 * Carries out what an operator orders, once for a reference. A refusal for want of money is kept under its reference: the same order may
 * still be under way, delayed, and must not move money after somebody was told that none has moved.
 * @throws Refusal for a wallet that is another's, a reference of something else, or money that is not there
 */
export async function moveByOperator(
  { database, clock }: Pick<RouteContext, 'database' | 'clock'>,
  wallet: WalletRow,
  order: OperatorMovement,
): Promise<OperatorEntry> {
  const tenant = ownerOf(wallet, order);
  const movement = { ...order, walletId: wallet.id };
  const outcome = await database.transaction().execute(async (transaction): Promise<OperatorEntry | RefusalCode> => {
    await waitForLock(transaction, `reference ${order.reference}`);
    const earlier = await findEarlier(transaction, tenant, movement);
    if (earlier !== null) return typeof earlier === 'string' ? earlier : { entry: earlier, isRepeated: true };
    const made = await move(transaction, clock, tenant, movement);
    if (typeof made !== 'string') return { entry: made, isRepeated: false };
    await keepRefusal(transaction, clock, tenant, movement, made);
    return made;
  });
  if (typeof outcome !== 'string') return outcome;
  const message = `${refusals[outcome]}. The reference ${order.reference} is used up: send the movement again with another one`;
  throw refused('amount', message, outcome);
}

/** What became of an earlier order under the reference; null where there was none. */
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
      entry.amount === amount &&
      entry.reason === reason;
    if (!isSame) throw referenceTaken(reference);
    return entry;
  }
  const kept = await findAnswer(transaction, tenant, keyOf(movement));
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
  await joinAdding(transaction, tenant);
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

/** With the answers under merchants' idempotency keys, and as long as those; no key of theirs has a space. */
function keepRefusal(
  transaction: ServicesTransaction,
  clock: DatabaseClock,
  tenant: Tenant,
  movement: WalletMovement,
  code: RefusalCode,
): Promise<void> {
  const kept = { fingerprint: fingerprintOf(movement), status: 422, body: { code } };
  return keepAnswer(transaction, tenant, keyOf(movement), kept, clock.now());
}

function keyOf({ reference }: WalletMovement): string {
  return `operator ${reference}`;
}

function fingerprintOf({ walletId, type, amount, reason }: WalletMovement): string {
  return requestFingerprint(`operator ${type}`, { walletId, amount, reason });
}

/** Whoever orders says again what the wallet is, so that a wrong id moves nothing. */
function ownerOf(wallet: WalletRow, { environment, currency, merchantId }: OperatorMovement): Tenant {
  const { merchant_id: owner, environment: actual } = wallet;
  if (environment !== actual)
    throw refused(
      'environment',
      `The wallet is in the environment ${actual}, not in ${environment}`,
      'wrong_environment',
    );
  if (currency !== wallet.currency)
    throw refused('currency', `The wallet is in ${wallet.currency}, not in ${currency}`, 'wrong_currency');
  if (merchantId !== null && merchantId !== owner)
    throw refused('merchantId', `The wallet belongs to the merchant ${owner}, not to ${merchantId}`, 'wrong_merchant');
  return { merchantId: owner, environment: actual };
}

function referenceTaken(reference: string): Refusal {
  return new Refusal(
    409,
    `The reference ${reference} is that of another movement: nothing was moved. To repeat that one, send what it was sent with`,
    [],
    'reference_taken',
  );
}

/** The wallet is locked, so none of its payouts begins or comes back meanwhile. */
async function hasRoomForRefunds(transaction: ServicesDatabase, entry: EntryRow): Promise<boolean> {
  const { underway } = await transaction
    .selectFrom('payouts')
    .select((it) => it.fn.sum<number | string | null>('amount').as('underway'))
    .where('wallet_id', '=', entry.wallet_id)
    .where('due_at', 'is not', null)
    .executeTakeFirstOrThrow();
  return entry.balance_after + Number(underway) <= Number.MAX_SAFE_INTEGER;
}

function refused(path: string, message: string, code: string): Refusal {
  return new Refusal(422, message, [{ path, message }], code);
}
