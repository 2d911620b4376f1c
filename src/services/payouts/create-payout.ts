import { randomUUID } from 'node:crypto';
import { ulid } from 'ulid';
import { later } from '../../database/database-clock.js';
import { Refusal } from '../../rest/refusal.js';
import { joinAdding } from '../creation-order.js';
import type { Tenant } from '../identity.js';
import { moveMoney } from '../ledger/move-money.js';
import type { RouteContext } from '../routes.js';
import type { ServicesDatabase } from '../services-database.js';
import type { Wallet } from '../wallets/schema.js';
import { insertPayout } from './repository.js';
import type { Payout, PayoutDestination } from './schema.js';

/** A payout that a merchant asks for. */
export interface PayoutOrder {
  readonly wallet: Wallet;
  readonly amount: number;
  /** The merchant's own, which is claimed already; null where it gave none. */
  readonly merchantReference: string | null;
  readonly destination: PayoutDestination;
}

const tooLittle = { path: 'amount', message: 'Insufficient wallet balance' };

/**
 * Debits the wallet, records that, and makes the payout; belongs in a database transaction, so that all of it happens or
 * nothing. Too little money is a 422 like any other field that cannot be accepted: 402 is the gateway's own bill in the
 * clients that know it.
 * @throws Refusal
 */
export async function createPayout(
  transaction: ServicesDatabase,
  { clock, bank }: Pick<RouteContext, 'clock' | 'bank'>,
  tenant: Tenant,
  { wallet, amount, merchantReference, destination }: PayoutOrder,
): Promise<Payout> {
  await joinAdding(transaction, tenant);
  const shared = { walletId: wallet.id, amount, currency: wallet.currency };
  const debit = { ...shared, type: 'debit', counterAccount: 'payouts' } as const;
  const moved = await moveMoney(transaction, tenant, debit, async () => {
    const now = clock.now();
    const named = { ...shared, id: randomUUID(), reference: ulid(), merchantReference };
    const times = { createdAt: now, dueAt: later(now, bank.delayMilliseconds) };
    const payout = await insertPayout(transaction, tenant, { ...named, ...destination, ...times });
    const { id: payoutId, reference } = payout;
    const createdAt = Date.parse(payout.createdAt);
    return { payout, payoutId, status: 'pending', reference, createdAt, reason: null, actor: null };
  });
  if (moved === null) throw Refusal.invalid([tooLittle], 'insufficient_balance');
  return moved.details.payout;
}
