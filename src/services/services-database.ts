import type { Kysely, Transaction } from 'kysely';
import { migrate } from '../database/migrate.js';
import { openDatabase, type DatabaseOptions } from '../database/open-database.js';
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
export async function openServicesDatabase(options: DatabaseOptions): Promise<ServicesDatabase> {
  const database = openDatabase<ServicesTables>(options);
  try {
    await migrate(database, migrations);
    return database;
  } catch (error) {
    await database.destroy();
    throw error;
  }
}
