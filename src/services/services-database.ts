import type { Kysely, Transaction } from '../database/kysely.js';
import { checkDatabase, openMigrated, type MigratedOptions } from '../database/open-migrated.js';
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
