import { lastNumber, takeSharedLock } from '../database/shared-lock.js';
import type { Tenant } from './identity.js';
import type { ServicesDatabase } from './services-database.js';

// PostgreSQL numbers a record when it is added, and shows it when its transaction is committed. Of two at once the older number
// may therefore turn up last, among records that somebody has read already: an export would miss one and have another twice.

/**
 * Comes first in a database transaction that adds to the merchant's lists: until it has ended, no list reaches its records
 * or later ones. Transactions that add do not wait for each other.
 */
export async function joinAdding(transaction: ServicesDatabase, tenant: Tenant): Promise<void> {
  await takeSharedLock(transaction, nameOf(tenant));
}

/** The number up to which a list of the merchant is complete; null: as far as can be seen. */
export function completeUpTo(
  database: ServicesDatabase,
  tenant: Tenant,
  table: 'payouts' | 'transactions' | 'customers',
  column: 'sequence' | 'id',
): Promise<number | null> {
  return lastNumber(database, nameOf(tenant), { table, column });
}

function nameOf({ merchantId, environment }: Tenant): string {
  return JSON.stringify([merchantId, environment]);
}
