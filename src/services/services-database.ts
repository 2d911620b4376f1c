import { type Kysely, type RawBuilder, sql, type SqlBool, type Transaction } from '../database/kysely.js';
import { lastNumber, takeSharedLock } from '../database/dialects.js';
import { checkDatabase, type MigratedOptions, openMigrated } from '../database/open-database.js';
import type { Tenant } from './assertion-verifier.js';
import { migrations } from './migrations/migrations.js';
import type { ServicesTables } from './tables.js';

/** Connects to the services' database, and changes nothing. @throws DatabaseError where the services could not start with it */
export function checkServicesDatabase(options: MigratedOptions): Promise<void> {
  return checkDatabase(options, migrations);
}

/** The services' database. */
export type ServicesDatabase = Kysely<ServicesTables>;

/** A transaction on it. */
export type ServicesTransaction = Transaction<ServicesTables>;

/**
 * Opens the services' database and brings it up to date.
 * @throws DatabaseError
 */
export function openServicesDatabase(options: MigratedOptions): Promise<ServicesDatabase> {
  return openMigrated<ServicesTables>(options, migrations);
}

/** The condition that stands in every query: only this merchant's records, of this environment. */
export function ownedBy({ merchantId, environment }: Tenant): RawBuilder<SqlBool> {
  return sql<SqlBool>`(merchant_id = ${merchantId} and environment = ${environment})`;
}

/** The columns of a new record that say whose it is. */
export function ownerColumns({ merchantId, environment }: Tenant) {
  return { merchant_id: merchantId, environment };
}

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
