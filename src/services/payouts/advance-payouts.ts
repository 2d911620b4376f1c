import { ulid } from 'ulid';
import { DatabaseError } from '../../database/database-error.js';
import { addMilliseconds, type SqlTime, limitLockWait } from '../../database/dialects.js';
import { type Selectable, sql, type SqlBool } from '../../database/kysely.js';
import type { Logger } from '../../rest/error-responses.js';
import { moveMoney } from '../ledger/move-money.js';
import type { RouteContext } from '../routes.js';
import { lockListForInsert, type ServicesDatabase } from '../services-database.js';
import type { ServicesTables } from '../tables.js';
import { setDebitStatus } from '../transactions/repository.js';
import { type BankOptions, bankOutcomeOf } from './simulated-bank.js';

type PayoutRow = Selectable<ServicesTables['payouts']>;

/** Dependencies of the payout worker. */
export type AdvanceContext = Pick<RouteContext, 'database' | 'clock' | 'bank'> & {
  readonly logger?: Logger | undefined;
};

const batch = 100;
/**
 * Duration of a lease. A lease is the exclusive right of a process to advance a payout. If that process dies, another
 * process takes over the payout at the end of the lease.
 */
const leaseMilliseconds = 30_000;
/**
 * Margin on top of the longest lease. If the `due_at` of a payout is further ahead than the longest lease plus this
 * margin, the clock was set back. So `leaseDue` takes this payout too.
 * The margin is necessary because a statement compares `due_at` with its own start time. While the statement waits for
 * a row lock, another process can lease the payout, and the new `due_at` counts from a later time. Without the margin,
 * the new `due_at` could seem too far ahead, and the payout would be leased twice.
 */
const leaseSlackMilliseconds = 900_000;
/**
 * Lock timeout of a refund. A hung process could hold the lock of the wallet. Without the timeout, all later refunds of
 * the batch would wait for this lock.
 */
const lockWaitMilliseconds = 1000;

/**
 * Advances due payouts by one step: from pending to processing, or from processing to successful or failed.
 * @returns true if more payouts could be due now
 */
export async function advancePayouts(context: AdvanceContext): Promise<boolean> {
  const { database, clock, bank } = context;
  const now = clock.now();
  const longest = Math.max(leaseMilliseconds, bank.delayMilliseconds) + leaseSlackMilliseconds;
  // A call must advance each payout by only one step. So lease `processing` payouts before `pending` payouts. In the
  // other order, with a bank delay of 0, a payout that just became `processing` would be due again and advance twice.
  const processed = await leaseDue(database, 'processing', { now, wait: leaseMilliseconds, longest });
  const taken = await leaseDue(database, 'pending', { now, wait: bank.delayMilliseconds, longest });
  const paid = processed.filter((payout) => outcomeOf(bank, payout).status === 'successful');
  await settlePaid(database, paid, clock.now());
  const lockedWallets = new Set<string>();
  for (const payout of processed) {
    const outcome = outcomeOf(bank, payout);
    if (outcome.status === 'successful' || lockedWallets.has(payout.wallet_id)) continue;
    if (!(await giveBack(context, payout, outcome.reason))) lockedWallets.add(payout.wallet_id);
  }
  return Math.max(processed.length, taken.length) === batch || (taken.length > 0 && bank.delayMilliseconds === 0);
}

/** The times of a lease (the exclusive right of a process to advance a payout). */
interface LeaseTimes {
  /** When the lease begins. */
  readonly now: SqlTime;
  /** How long the lease lasts, in milliseconds. */
  readonly wait: number;
  /** The longest possible lease plus `leaseSlackMilliseconds`, in milliseconds. */
  readonly longest: number;
}

/**
 * Leases due payouts of one status, and returns them. To lease a payout, moves its `due_at` into the future, so that
 * concurrent processes skip the payout. Pending payouts become `processing`.
 */
function leaseDue(database: ServicesDatabase, status: 'pending' | 'processing', { now, wait, longest }: LeaseTimes) {
  // A `due_at` further ahead than `longest` means that the clock was set back after the payout was leased. The payout
  // then counts as due. Otherwise it would have to wait until the clock reaches this distant `due_at`.
  const isDue = sql<SqlBool>`(due_at <= ${now} or due_at > ${addMilliseconds(now, longest)})`;
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
    .set({
      status: 'processing',
      due_at: addMilliseconds(now, wait),
      ...(status === 'pending' ? { updated_at: now } : {}),
    })
    .where('id', 'in', due)
    .where(isDue)
    .where('status', '=', status)
    .returningAll()
    .execute();
}

function outcomeOf(bank: BankOptions, { destination_account_number: destinationAccountNumber, recipient }: PayoutRow) {
  return bankOutcomeOf(bank, { destinationAccountNumber, recipient });
}

/**
 * Marks paid payouts and their debits as successful. The transaction locks no wallet, so it can contain all payouts
 * without blocking other movements.
 */
async function settlePaid(database: ServicesDatabase, payouts: readonly PayoutRow[], now: SqlTime): Promise<void> {
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
    await setDebitStatus(
      transaction,
      ended.map(({ id }) => id),
      'successful',
    );
  });
}

/**
 * Refunds one failed payout. An error is only logged, so that other payouts continue. The refund is retried when the
 * lease of the payout expires. After a DatabaseError, such as a lock timeout of the wallet, `advancePayouts` skips the
 * other refunds to the same wallet for now.
 * @returns false after a DatabaseError, true otherwise
 */
async function giveBack(
  { database, clock, logger }: AdvanceContext,
  payout: PayoutRow,
  reason: string,
): Promise<boolean> {
  try {
    await refundFailed(database, payout, reason, clock.now());
    return true;
  } catch (error) {
    logger?.error({ err: error, payout: payout.id }, 'a failed payout could not be refunded; retrying');
    return !(error instanceof DatabaseError);
  }
}

/**
 * Marks a payout as failed and refunds its amount in one transaction. Only the first call finds the status
 * `processing`, so the payout is refunded only once.
 */
export function refundFailed(
  database: ServicesDatabase,
  payout: PayoutRow,
  reason: string,
  now: SqlTime,
): Promise<void> {
  const { id, amount, currency, wallet_id: walletId, merchant_id: merchantId, environment } = payout;
  const tenant = { merchantId, environment };
  return database.transaction().execute(async (transaction) => {
    await limitLockWait<ServicesTables>(transaction, lockWaitMilliseconds);
    await lockListForInsert(transaction, tenant);
    const ended = await transaction
      .updateTable('payouts')
      .set({ status: 'failed', failure_reason: reason, due_at: null, updated_at: now })
      .where('id', '=', id)
      .where('status', '=', 'processing')
      .returning('updated_at')
      .executeTakeFirst();
    if (ended === undefined) return;
    await setDebitStatus(transaction, [id], 'reversed');
    const refund = { type: 'credit', walletId, amount, currency, counterAccount: 'payouts' } as const;
    const moved = await moveMoney(transaction, tenant, refund, () => ({
      ...({ payoutId: id, status: 'successful', reason: null, actor: null } as const),
      ...{ reference: ulid(), createdAt: ended.updated_at },
    }));
    // A refund cannot raise the balance above the maximum: an operator's credit is rejected if the balance plus all
    // payouts in progress would exceed the maximum.
    if (moved === null)
      throw new Error(`the refund would raise the balance of the wallet ${walletId} above the maximum`);
  });
}
