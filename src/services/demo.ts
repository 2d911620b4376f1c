import { ulid } from 'ulid';
import type { Tenant } from './assertion-verifier.js';
import { insertCustomer } from './customers/repository.js';
import { moveMoney } from './ledger/move-money.js';
import { openWallet } from './ledger/open-wallet.js';
import type { ServicesDatabase } from './services-database.js';
import { findDefaultWallet } from './wallets/repository.js';

/** The merchant and environment of the sample records, and the time of the newest record in milliseconds since 1970. */
export interface DemoOptions extends Tenant {
  readonly now: number;
}

const currency = 'NGN';
const actor = 'dev';
const millisecondsBetween = 5 * 60 * 60 * 1000;

/**
 * Amounts of the sample transactions in kobo, oldest first; negative amounts are debits. All amounts add up to the
 * balance of the demo wallet.
 */
const movements = [
  1_500_000, -120_000, 350_000, 80_000, -45_500, 640_000, -210_000, 99_900, 275_000, -60_000, 1_200_000, -330_000,
  18_500, 42_000, -75_000, 505_000, 150_000, -199_900, 260_000, 33_000, -88_000, 720_000, -140_000, 310_000, 85_000,
];

const people = [
  { email: 'amina.okafor@example.com', firstName: 'Amina', lastName: 'Okafor', phone: '+2348000000001' },
  { email: 'kwame.mensah@example.com', firstName: 'Kwame', lastName: 'Mensah', phone: '+233200000002' },
  { email: 'zainab.bello@example.com', firstName: 'Zainab', lastName: 'Bello' },
];

/** Inserts sample records for a merchant. Changes nothing if the merchant already has a default wallet in NGN. */
export function seedDemo(database: ServicesDatabase, { now, ...tenant }: DemoOptions): Promise<{ walletId: string }> {
  return database.transaction().execute(async (transaction) => {
    const existing = await findDefaultWallet(transaction, tenant, currency);
    if (existing !== null) return { walletId: existing.id };

    const openedAt = now - movements.length * millisecondsBetween;
    const wallet = { id: null, currency, isDefault: true, createdBy: actor, createdAt: openedAt };
    const { id: walletId } = (await openWallet(transaction, tenant, wallet)).wallet;
    for (const [index, amount] of movements.entries()) {
      const type = amount > 0 ? 'credit' : 'debit';
      const movement = { walletId, type, amount: Math.abs(amount), currency, counterAccount: 'float' } as const;
      const createdAt = openedAt + (index + 1) * millisecondsBetween;
      await moveMoney(transaction, tenant, movement, () => ({
        ...({ payoutId: null, status: 'successful', reason: 'Sample record', actor } as const),
        ...{ reference: ulid(createdAt), createdAt },
      }));
    }
    for (const person of people) await insertCustomer(transaction, tenant, person, openedAt);
    return { walletId };
  });
}
