import { randomUUID } from 'node:crypto';
import { ulid } from 'ulid';
import type { Tenant } from '../identity.js';
import type { RouteContext } from '../routes.js';
import type { ServicesDatabase } from '../services-database.js';
import { recordTransaction } from '../transactions/repository.js';
import { debitWallet } from '../wallets/repository.js';
import type { Wallet } from '../wallets/schema.js';
import { insertPayout } from './repository.js';
import type { Payout, PayoutDestination } from './schema.js';

/** A payout that a merchant asks for. */
export interface PayoutOrder {
  /** Finds the wallet that pays, inside the database transaction. */
  readonly wallet: (database: ServicesDatabase) => Promise<Wallet | null>;
  readonly amount: number;
  readonly destination: PayoutDestination;
}

/** What came of an order. */
export type PayoutOutcome =
  | { readonly kind: 'created'; readonly payout: Payout }
  | { readonly kind: 'wallet_not_found' }
  | { readonly kind: 'insufficient_balance' };

/** Debits the wallet, records that, and makes the payout: all of it or nothing. */
export function createPayout(
  { database, clock }: RouteContext,
  tenant: Tenant,
  order: PayoutOrder,
): Promise<PayoutOutcome> {
  return database.transaction().execute(async (transaction) => {
    const wallet = await order.wallet(transaction);
    if (wallet === null) return { kind: 'wallet_not_found' };
    const { amount } = order;
    const balanceAfter = await debitWallet(transaction, tenant, wallet.id, amount);
    if (balanceAfter === null) return { kind: 'insufficient_balance' };

    const createdAt = clock.now();
    const movement = { walletId: wallet.id, amount, currency: wallet.currency, reference: ulid(createdAt), createdAt };
    const payout = await insertPayout(transaction, tenant, { ...movement, id: randomUUID(), ...order.destination });
    await recordTransaction(transaction, tenant, { ...movement, type: 'debit', payoutId: payout.id, balanceAfter });
    return { kind: 'created', payout };
  });
}
