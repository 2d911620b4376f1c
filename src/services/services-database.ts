import { type Kysely, type RawBuilder, sql, type SqlBool, type Transaction } from '../database/kysely.js';
import { lastSequenceValue, takeSharedLock } from '../database/dialects.js';
import { checkDatabase, type MigratedOptions, openMigrated } from '../database/open-database.js';
import type { Tenant } from './assertion-verifier.js';
import { migrations } from './migrations/migrations.js';
import type { ServicesTables } from './tables.js';

/**
 * Connects to the services' database and checks it, without changing it.
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
 * @throws DatabaseError if the database cannot be opened or migrated
 */
export function openServicesDatabase(options: MigratedOptions): Promise<ServicesDatabase> {
  return openMigrated<ServicesTables>(options, migrations);
}

/** Builds the SQL condition that limits a merchant's query to records of this merchant and environment. */
export function ownedBy({ merchantId, environment }: Tenant): RawBuilder<SqlBool> {
  return sql<SqlBool>`(merchant_id = ${merchantId} and environment = ${environment})`;
}

/** Returns the columns that name the owner of a new record. */
export function ownerColumns({ merchantId, environment }: Tenant) {
  return { merchant_id: merchantId, environment };
}

// PostgreSQL numbers a record when it is inserted, but shows the record only after the commit. So a record with a lower
// number can appear later, among records that a client has already read. A paged export would then miss one record and
// repeat another.

/**
 * Takes a shared lock on the merchant's lists until the transaction ends. Must be called before the transaction locks
 * or inserts rows. Queries of these lists wait until the lock is released. Otherwise a list could miss a record that is
 * committed later. Inserting transactions do not wait for each other.
 */
export async function lockListForInsert(transaction: ServicesDatabase, tenant: Tenant): Promise<void> {
  await takeSharedLock(transaction, nameOf(tenant));
}

/**
 * Waits until no transaction inserts into the merchant's lists. After that, returns the last number assigned in the
 * table. Later records get larger numbers, so a list up to this number is complete. Returns null on SQLite, where each
 * list is complete.
 */
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
