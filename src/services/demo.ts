import { randomUUID } from 'node:crypto';
import { ulid } from 'ulid';
import { insertCustomer } from './customers/repository.js';
import type { Tenant } from './identity.js';
import { ownerColumns } from './owned-by.js';
import type { ServicesDatabase } from './services-database.js';
import { recordTransaction } from './transactions/repository.js';
import { findDefaultWallet } from './wallets/repository.js';

/** For whom sample records are made, and the moment at which the newest of them is dated. */
export interface DemoOptions extends Tenant {
  readonly now: number;
}

const currency = 'NGN';
const millisecondsBetween = 5 * 60 * 60 * 1000;

/** Movements in kobo, oldest first: positive in, negative out. They add up to the balance of the demo wallet. */
const movements = [
  1_500_000, -120_000, 350_000, 80_000, -45_500, 640_000, -210_000, 99_900, 275_000, -60_000, 1_200_000, -330_000,
  18_500, 42_000, -75_000, 505_000, 150_000, -199_900, 260_000, 33_000, -88_000, 720_000, -140_000, 310_000, 85_000,
];

const people = [
  { email: 'amina.okafor@example.com', firstName: 'Amina', lastName: 'Okafor', phone: '+2348000000001' },
  { email: 'kwame.mensah@example.com', firstName: 'Kwame', lastName: 'Mensah', phone: '+233200000002' },
  { email: 'zainab.bello@example.com', firstName: 'Zainab', lastName: 'Bello' },
];

/** Gives a merchant that has no default wallet sample records to try the API with; changes nothing otherwise. */
export function seedDemo(database: ServicesDatabase, { now, ...tenant }: DemoOptions): Promise<{ walletId: string }> {
  return database.transaction().execute(async (transaction) => {
    const existing = await findDefaultWallet(transaction, tenant, currency);
    if (existing !== null) return { walletId: existing.id };

    const walletId = randomUUID();
    const openedAt = now - movements.length * millisecondsBetween;
    const balance = movements.reduce((sum, movement) => sum + movement, 0);
    await transaction
      .insertInto('wallets')
      .values({ ...ownerColumns(tenant), id: walletId, currency, balance, is_default: 1, created_at: openedAt })
      .execute();
    let balanceAfter = 0;
    for (const [index, movement] of movements.entries()) {
      const createdAt = openedAt + (index + 1) * millisecondsBetween;
      balanceAfter += movement;
      await recordTransaction(transaction, tenant, {
        walletId,
        payoutId: null,
        type: movement > 0 ? 'credit' : 'debit',
        status: 'successful',
        amount: Math.abs(movement),
        currency,
        reference: ulid(createdAt),
        balanceAfter,
        createdAt,
      });
    }
    for (const person of people) await insertCustomer(transaction, tenant, person, openedAt);
    return { walletId };
  });
}
