import type { RegistryDatabase } from '../registry-database.js';

/** Where the database's history stands. */
export interface History {
  readonly generation: string;
  /** The number of the newest change. */
  readonly revision: number;
}

/** Reads where the history stands. */
export async function readHistory(database: RegistryDatabase): Promise<History> {
  const { generation, value } = await database.selectFrom('revision').selectAll().executeTakeFirstOrThrow();
  return { generation, revision: value };
}

/**
 * Begins a new history after a revision that gateways or their store know and this database does not: it was restored from
 * a backup, or is a new one. Otherwise they would seem to have acknowledged the next changes before these are made.
 * @returns whether that was necessary
 */
export async function continueAfter(
  database: RegistryDatabase,
  revision: number,
  generation: string,
): Promise<boolean> {
  const { numUpdatedRows } = await database
    .updateTable('revision')
    .set({ value: revision, generation })
    .where('value', '<', revision)
    .executeTakeFirstOrThrow();
  return numUpdatedRows > 0n;
}
