import { isUniqueViolation } from '../../database/unique-violation.js';
import type { DatabaseClock } from '../../database/database-clock.js';
import { Refusal } from '../../rest/refusal.js';
import { joinAdding } from '../creation-order.js';
import type { Environment, Tenant } from '../identity.js';
import type { RouteContext } from '../routes.js';
import type { ServicesDatabase, ServicesTransaction } from '../services-database.js';
import { moveMoney, type EntryRow, type Movement } from './move-money.js';
import type { WalletRow } from './open-wallet.js';

/** What an operator orders: money from the float into a wallet (`credit`), or back (`debit`). */
export interface OperatorMovement {
  readonly type: Movement['type'];
  readonly amount: number;
  readonly currency: string;
  readonly environment: Environment;
  /** Null: whoever has the wallet. */
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

/**
 * Carries out what an operator orders, once for a reference.
 * @throws Refusal for a wallet that is another's, a reference of something else, or money that is not there
 */
export async function moveByOperator(
  { database, clock }: Pick<RouteContext, 'database' | 'clock'>,
  wallet: WalletRow,
  movement: OperatorMovement,
): Promise<OperatorEntry> {
  const tenant = ownerOf(wallet, movement);
  const attempt = () =>
    database
      .transaction()
      .execute((transaction) => move(transaction, clock, tenant, { ...movement, walletId: wallet.id }));
  try {
    return await attempt();
  } catch (error) {
    // Another order has just been carried out under the reference: by now it can be seen.
    if (!isUniqueViolation(error)) throw error;
    return attempt();
  }
}

async function move(
  transaction: ServicesTransaction,
  clock: DatabaseClock,
  tenant: Tenant,
  movement: OperatorMovement & { readonly walletId: string },
): Promise<OperatorEntry> {
  const { walletId, type, amount, currency, reference, reason, actor } = movement;
  await joinAdding(transaction, tenant);
  const earlier = await transaction
    .selectFrom('transactions')
    .selectAll()
    .where('reference', '=', reference)
    .executeTakeFirst();
  if (earlier !== undefined) return { entry: sameOrRefused(earlier, movement), isRepeated: true };
  const between = { walletId, type, amount, currency, counterAccount: 'float' } as const;
  const moved = await moveMoney(transaction, tenant, between, () => ({
    ...({ payoutId: null, status: 'successful', createdAt: clock.now() } as const),
    ...{ reference, reason, actor },
  }));
  if (moved === null) throw type === 'debit' ? overdraft() : noRoom();
  if (type === 'credit') await keepRoomForRefunds(transaction, moved.entry);
  return { entry: moved.entry, isRepeated: false };
}

/** Whoever orders says again what the wallet is, so that a wrong id moves nothing. */
function ownerOf(wallet: WalletRow, { environment, currency, merchantId }: OperatorMovement): Tenant {
  const { merchant_id: owner, environment: actual } = wallet;
  if (environment !== actual)
    throw refused('environment', `The wallet is one of ${actual}, not of ${environment}`, 'wrong_environment');
  if (currency !== wallet.currency)
    throw refused('currency', `The wallet is in ${wallet.currency}, not in ${currency}`, 'wrong_currency');
  if (merchantId !== null && merchantId !== owner)
    throw refused('merchantId', `The wallet is of the merchant ${owner}, not of ${merchantId}`, 'wrong_merchant');
  return { merchantId: owner, environment: actual };
}

function sameOrRefused(
  entry: EntryRow,
  { walletId, type, amount, reason, reference }: OperatorMovement & { readonly walletId: string },
): EntryRow {
  const isSame =
    entry.counter_account === 'float' &&
    entry.wallet_id === walletId &&
    entry.type === type &&
    entry.amount === amount &&
    entry.reason === reason;
  if (isSame) return entry;
  throw new Refusal(
    409,
    `The reference ${reference} is that of another movement: nothing was moved. To repeat that one, send what it was sent with`,
    [],
    'reference_taken',
  );
}

/** The wallet is locked, so none of its payouts begins or comes back meanwhile. */
async function keepRoomForRefunds(transaction: ServicesDatabase, entry: EntryRow): Promise<void> {
  const { underway } = await transaction
    .selectFrom('payouts')
    .select((it) => it.fn.sum<number | string | null>('amount').as('underway'))
    .where('wallet_id', '=', entry.wallet_id)
    .where('due_at', 'is not', null)
    .executeTakeFirstOrThrow();
  if (entry.balance_after + Number(underway) > Number.MAX_SAFE_INTEGER) throw noRoom();
}

function overdraft(): Refusal {
  return refused('amount', 'Insufficient wallet balance', 'insufficient_balance');
}

function noRoom(): Refusal {
  const most = `The balance, with the payouts that are under way, would be above ${Number.MAX_SAFE_INTEGER}`;
  return refused('amount', most, 'balance_too_large');
}

function refused(path: string, message: string, code: string): Refusal {
  return new Refusal(422, message, [{ path, message }], code);
}
