import type { Kysely } from '../database/kysely.js';
import { checkDatabase, openMigrated, type MigratedOptions } from '../database/open-database.js';
import { migrations } from './migrations/migrations.js';
import type { RegistryTables } from './tables.js';

/**
 * Checks that the registry could start with its database. Changes nothing.
 * @throws DatabaseError if the registry could not start
 */
export function checkRegistryDatabase(options: MigratedOptions): Promise<void> {
  return checkDatabase(options, migrations);
}

/** The registry's database. */
export type RegistryDatabase = Kysely<RegistryTables>;

/** Options of the registry's database. */
export interface RegistryDatabaseOptions extends MigratedOptions {
  readonly generation: string;
}

/**
 * Opens the registry's database and applies its migrations. Inserts the single rows of the tables `revision` and
 * `projector` if they are missing.
 * @throws DatabaseError
 */
export async function openRegistryDatabase({
  generation,
  ...options
}: RegistryDatabaseOptions): Promise<RegistryDatabase> {
  const database = await openMigrated<RegistryTables>(options, migrations);
  try {
    await database
      .insertInto('revision')
      .values({ id: 1, value: 0, generation, is_open: 1 })
      .onConflict((conflict) => conflict.doNothing())
      .execute();
    await database
      .insertInto('projector')
      .values({ id: 1, holder: '', lease_ends_at: 0 })
      .onConflict((conflict) => conflict.doNothing())
      .execute();
    return database;
  } catch (error) {
    await database.destroy();
    throw error;
  }
}
