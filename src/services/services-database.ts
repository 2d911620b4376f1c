import { type Kysely, type RawBuilder, sql, type SqlBool, type Transaction } from '../database/kysely.js';
import { lastSequenceValue, takeSharedLock } from '../database/dialects.js';
import { checkDatabase, type MigratedOptions, openMigrated } from '../database/open-database.js';
import type { Tenant } from './assertion-verifier.js';
import { migrations } from './migrations/migrations.js';
import type { ServicesTables } from './tables.js';

/**
 * Connects to the services' database without changing it.
 * @throws DatabaseError if the services could not start with this database
 */
export function checkServicesDatabase(options: MigratedOptions): Promise<void> {
  return checkDatabase(options, migrations);
}

/** The services' database. */
export type ServicesDatabase = Kysely<ServicesTables>;

/** A transaction on the services' database. */
export type ServicesTransaction = Transaction<ServicesTables>;

/**
 * Opens the services' database and runs the pending migrations.
 * @throws DatabaseError
 */
export function openServicesDatabase(options: MigratedOptions): Promise<ServicesDatabase> {
  return openMigrated<ServicesTables>(options, migrations);
}

/** The condition of every query for a merchant: only records of this merchant and environment. */
export function ownedBy({ merchantId, environment }: Tenant): RawBuilder<SqlBool> {
  return sql<SqlBool>`(merchant_id = ${merchantId} and environment = ${environment})`;
}

/** The owner columns of a new record. */
export function ownerColumns({ merchantId, environment }: Tenant) {
  return { merchant_id: merchantId, environment };
}

// PostgreSQL numbers a record at its insert and shows it after the commit. Of two concurrent records the lower number
// may therefore appear last, among records that a client has already read. An export by pages would then miss one
// record and repeat another one.

/**
 * Call this in a transaction that inserts into the merchant's lists, before it locks rows or inserts. Until the
 * transaction has ended, lists omit its records and later ones. Inserting transactions do not wait for each other.
 */
export async function lockListForInsert(transaction: ServicesDatabase, tenant: Tenant): Promise<void> {
  await takeSharedLock(transaction, nameOf(tenant));
}

/** The number up to which a list of the merchant is complete; null on SQLite, where every list is complete. */
export function lastCompleteNumber(
  database: ServicesDatabase,
  tenant: Tenant,
  table: 'payouts' | 'transactions' | 'customers',
  column: 'sequence' | 'id',
): Promise<number | null> {
  return lastSequenceValue(database, nameOf(tenant), { table, column });
}

function nameOf({ merchantId, environment }: Tenant): string {
  return JSON.stringify([merchantId, environment]);
}
