import type { Kysely, Transaction } from '../database/kysely.js';
import { openMigrated, type MigratedOptions } from '../database/open-migrated.js';
import { migrations } from './migrations/migrations.js';
import type { ServicesTables } from './tables.js';

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
