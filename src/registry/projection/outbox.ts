import type { Position } from '../ports.js';
import type { RegistryDatabase } from '../registry-database.js';
import { unnamedChange } from './history.js';

/** What is to be projected next: whole changes, in their order, and the newest of them. */
export interface Batch extends Position {
  readonly names: readonly string[];
}

const mostRows = 200;

/** The oldest changes after a number that are not projected yet; null where there are none. */
export async function oldestChanges(database: RegistryDatabase, after = -1): Promise<Batch | null> {
  const rows = await database
    .selectFrom('outbox')
    .selectAll()
    .where('revision', '>', after)
    .orderBy('revision')
    .orderBy('name')
    .limit(mostRows)
    .execute();
  const revision = rows.at(-1)?.revision;
  if (revision === undefined) return null;
  // The limit may have cut the last change in two, and a change is published whole. It is of a few records.
  const last = await database.selectFrom('outbox').selectAll().where('revision', '=', revision).execute();
  const change = last.find((row) => row.change !== null)?.change ?? unnamedChange;
  return { revision, change, names: [...new Set([...rows, ...last].map(({ name }) => name))] };
}

/** Takes out the changes up to this one, all of which are projected. */
export async function removeChanges(database: RegistryDatabase, revision: number): Promise<void> {
  await database.deleteFrom('outbox').where('revision', '<=', revision).execute();
}

/** The oldest change that is yet to be projected; null where there is none. */
export async function oldestWaiting(database: RegistryDatabase): Promise<number | null> {
  const row = await database
    .selectFrom('outbox')
    .select((it) => it.fn.min('revision').as('revision'))
    .executeTakeFirst();
  return row?.revision ?? null;
}

/** Whether a change, or one before it, is yet to be projected. */
export async function isWaiting(database: RegistryDatabase, revision: number): Promise<boolean> {
  const row = await database
    .selectFrom('outbox')
    .select('revision')
    .where('revision', '<=', revision)
    .limit(1)
    .executeTakeFirst();
  return row !== undefined;
}
