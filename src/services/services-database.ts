import { type Kysely, type RawBuilder, sql, type SqlBool, type Transaction } from '../database/kysely.js';
import { lastSequenceValue, takeSharedLock } from '../database/dialects.js';
import { checkDatabase, type MigratedOptions, openDatabase, openMigrated } from '../database/open-database.js';
import type { Tenant } from './assertion-verifier.js';
import { migrations } from './migrations/migrations.js';
import type { ServicesTables } from './tables.js';

/** For each table that a list route of the API reads, the column that numbers the records in ascending order. */
const numberColumns = { payouts: 'sequence', transactions: 'id', customers: 'sequence' } as const;

/**
 * Checks the services' database without migrating it. Creates a missing SQLite file if `existingOf` is undefined.
 * @throws DatabaseError if the services could not start with this database
 */
export async function checkServicesDatabase(options: MigratedOptions): Promise<void> {
  await checkDatabase(options, migrations);
  if (options.existingOf === undefined) return; // the tables can be missing
  const database = openDatabase<ServicesTables>(options);
  await requireListRights(database).finally(() => database.destroy());
}

/** The services' database. */
export type ServicesDatabase = Kysely<ServicesTables>;

/** A transaction on the services' database. */
export type ServicesTransaction = Transaction<ServicesTables>;

/**
 * Opens the services' database and runs the pending migrations.
 * @throws DatabaseError if the database cannot be opened or migrated, or if its user may not read the sequences that
 *   number the rows
 */
export async function openServicesDatabase(options: MigratedOptions): Promise<ServicesDatabase> {
  const database = await openMigrated<ServicesTables>(options, migrations);
  try {
    await requireListRights(database);
    return database;
  } catch (error) {
    await database.destroy();
    throw error;
  }
}

/** Throws a DatabaseError if the database user may not read the sequences, which the queries of all lists read. */
async function requireListRights(database: ServicesDatabase): Promise<void> {
  for (const [table, column] of Object.entries(numberColumns)) {
    await lastSequenceValue(database, 'list rights', { table, column });
  }
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
 * or inserts rows. A query of these lists waits until the lock is released, so that it does not miss a record that is
 * inserted but not yet committed. The lock is shared, so inserting transactions do not wait for each other.
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
  table: keyof typeof numberColumns,
): Promise<number | null> {
  return lastSequenceValue(database, nameOf(tenant), { table, column: numberColumns[table] });
}

function nameOf({ merchantId, environment }: Tenant): string {
  return JSON.stringify([merchantId, environment]);
}
