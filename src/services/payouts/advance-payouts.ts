import { ulid } from 'ulid';
import { DatabaseError } from '../../database/database-error.js';
import { later, type Moment, limitLockWait } from '../../database/dialects.js';
import { type Selectable, sql, type SqlBool } from '../../database/kysely.js';
import type { Logger } from '../../rest/answer-errors.js';
import { moveMoney } from '../ledger/move-money.js';
import type { RouteContext } from '../routes.js';
import { joinAdding, type ServicesDatabase } from '../services-database.js';
import type { ServicesTables } from '../tables.js';
import { endDebits } from '../transactions/repository.js';
import { type BankOptions, bankOutcomeOf } from './simulated-bank.js';

type PayoutRow = Selectable<ServicesTables['payouts']>;

/** What moves payouts. */
export type AdvanceContext = Pick<RouteContext, 'database' | 'clock' | 'bank'> & {
  readonly logger?: Logger | undefined;
};

const batch = 100;
/** After which another process may ask the bank again, where the one that was at it has died. */
const claimMilliseconds = 30_000;
/** How much later than that a payout may be due: its taker may have looked at the clock after others, who waited for it. */
const latestMilliseconds = 900_000;
/** How long a refund may wait for its wallet, which a process that hangs may have locked, while other payouts wait for it. */
const lockWaitMilliseconds = 1000;

/**
 * Moves the payouts whose time has come a step on: to the bank, or to their end.
 * @returns true where there may be more of them
 */
export async function advancePayouts(context: AdvanceContext): Promise<boolean> {
  const { database, clock, bank } = context;
  const now = clock.now();
  const longest = Math.max(claimMilliseconds, bank.delayMilliseconds) + latestMilliseconds;
  // What has just gone to the bank is not due before its next delay, were it none.
  const processed = await takeDue(database, 'processing', { now, wait: claimMilliseconds, longest });
  const taken = await takeDue(database, 'pending', { now, wait: bank.delayMilliseconds, longest });
  const paid = processed.filter((payout) => outcomeOf(bank, payout).status === 'successful');
  await endPaid(database, paid, clock.now());
  const lockedWallets = new Set<string>();
  for (const payout of processed) {
    const outcome = outcomeOf(bank, payout);
    if (outcome.status === 'successful' || lockedWallets.has(payout.wallet_id)) continue;
    if (!(await giveBack(context, payout, outcome.reason))) lockedWallets.add(payout.wallet_id);
  }
  return Math.max(processed.length, taken.length) === batch || (taken.length > 0 && bank.delayMilliseconds === 0);
}

/** When payouts are taken, how long nobody shall take them again, and how long that can be at most. */
interface Times {
  readonly now: Moment;
  readonly wait: number;
  readonly longest: number;
}

/** Takes due payouts of one state for processing. A process that comes second finds them due later, and leaves them. */
function takeDue(database: ServicesDatabase, status: 'pending' | 'processing', { now, wait, longest }: Times) {
  // What is due later than anything can be was taken before the clock was put back.
  const isDue = sql<SqlBool>`(due_at <= ${now} or due_at > ${later(now, longest)})`;
  const due = database
    .selectFrom('payouts')
    .select('id')
    .where(isDue)
    .where('status', '=', status)
    .orderBy('due_at')
    .orderBy('sequence')
    .limit(batch);
  return database
    .updateTable('payouts')
    .set({ status: 'processing', due_at: later(now, wait), ...(status === 'pending' ? { updated_at: now } : {}) })
    .where('id', 'in', due)
    .where(isDue)
    .where('status', '=', status)
    .returningAll()
    .execute();
}

function outcomeOf(bank: BankOptions, { destination_account_number: destinationAccountNumber, recipient }: PayoutRow) {
  return bankOutcomeOf(bank, { destinationAccountNumber, recipient });
}

/** Ends payouts that have arrived, together: nothing but their states changes. */
async function endPaid(database: ServicesDatabase, payouts: readonly PayoutRow[], now: Moment): Promise<void> {
  if (payouts.length === 0) return;
  await database.transaction().execute(async (transaction) => {
    const ended = await transaction
      .updateTable('payouts')
      .set({ status: 'successful', due_at: null, updated_at: now })
      .where(
        'id',
        'in',
        payouts.map(({ id }) => id),
      )
      .where('status', '=', 'processing')
      .returning('id')
      .execute();
    await endDebits(
      transaction,
      ended.map(({ id }) => id),
      'successful',
    );
  });
}

/**
 * One payout that cannot be given back must not hold up the others; it comes up again when its claim has ended.
 * @returns false where its wallet could not be had, so that others of the wallet are not worth a try now
 */
async function giveBack(
  { database, clock, logger }: AdvanceContext,
  payout: PayoutRow,
  reason: string,
): Promise<boolean> {
  try {
    await endFailed(database, payout, reason, clock.now());
    return true;
  } catch (error) {
    logger?.error({ err: error, payout: payout.id }, 'a payout could not be settled; it is tried again');
    return !(error instanceof DatabaseError);
  }
}

/**
 * Ends a payout that has failed, and puts the money back: all of it or nothing. Only the first to come finds it processing,
 * so that it ends once and is refunded once.
 */
export function endFailed(database: ServicesDatabase, payout: PayoutRow, reason: string, now: Moment): Promise<void> {
  const { id, amount, currency, wallet_id: walletId, merchant_id: merchantId, environment } = payout;
  const tenant = { merchantId, environment };
  return database.transaction().execute(async (transaction) => {
    await limitLockWait<ServicesTables>(transaction, lockWaitMilliseconds);
    await joinAdding(transaction, tenant);
    const ended = await transaction
      .updateTable('payouts')
      .set({ status: 'failed', failure_reason: reason, due_at: null, updated_at: now })
      .where('id', '=', id)
      .where('status', '=', 'processing')
      .returning('updated_at')
      .executeTakeFirst();
    if (ended === undefined) return;
    await endDebits(transaction, [id], 'reversed');
    const refund = { type: 'credit', walletId, amount, currency, counterAccount: 'payouts' } as const;
    const moved = await moveMoney(transaction, tenant, refund, () => ({
      ...({ payoutId: id, status: 'successful', reason: null, actor: null } as const),
      ...{ reference: ulid(), createdAt: ended.updated_at },
    }));
    // What is under way is kept free in its wallet, so that there is room for it to come back.
    if (moved === null) throw new Error(`the wallet ${walletId} has no room for a refund`);
  });
}
