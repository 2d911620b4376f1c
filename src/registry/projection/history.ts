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
  return database.transaction().execute(async (transaction) => {
    const former = transaction.selectFrom('revision').select('generation').where('value', '<', revision);
    await transaction
      .insertInto('former_generations')
      .columns(['generation'])
      .expression(former)
      .onConflict((conflict) => conflict.doNothing())
      .execute();
    const { numUpdatedRows } = await transaction
      .updateTable('revision')
      .set({ value: revision, generation })
      .where('value', '<', revision)
      .executeTakeFirstOrThrow();
    return numUpdatedRows > 0n;
  });
}

/** Whether the database has, or once had, this history. */
export async function hasHad(database: RegistryDatabase, generation: string): Promise<boolean> {
  const current = database.selectFrom('revision').select('generation').where('generation', '=', generation);
  const former = database.selectFrom('former_generations').select('generation').where('generation', '=', generation);
  return (await current.unionAll(former).executeTakeFirst()) !== undefined;
}
