import type { Position, RecordsStore, StoreEntry } from '../../gateway/store-ports.js';
import type { RegistryDatabase } from '../registry-database.js';
import { currentRecords } from './current-records.js';
import { beginGeneration, laterGeneration, readHistory, unnamedChange } from './history.js';
import type { Lease } from './lease.js';

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

/** What records are written with. */
interface RecordsWriterOptions {
  readonly database: RegistryDatabase;
  readonly store: Pick<RecordsStore, 'write' | 'rewrite'>;
  readonly lease: Pick<Lease, 'finish'>;
  /** A name for a new generation. */
  readonly newGeneration: () => string;
}

/** Writes records, and sees to it that none of a history that was lost stays. */
export class RecordsWriter {
  readonly #options: RecordsWriterOptions;

  constructor(options: RecordsWriterOptions) {
    this.#options = options;
  }

  /** Writes the records of some changes as they are now. @throws Error as `rewrite` */
  async write({ names, revision }: Batch): Promise<void> {
    const { database, store } = this.#options;
    const { generation } = await readHistory(database);
    const records = await currentRecords(database, names);
    await this.#replaceStrange(await store.write(records, revision, generation), names);
  }

  /**
   * Writes records anew. @param revision up to which they replace what is there
   * @throws Error where the store has one of a later change than the database knows; the next pass writes everything anew
   */
  async rewrite(entries: readonly StoreEntry[], revision: number): Promise<void> {
    const { generation } = await readHistory(this.#options.database);
    const stayed = await this.#options.store.rewrite(entries, revision, generation);
    await this.#replaceStrange(
      stayed,
      entries.map(({ name }) => name),
    );
  }

  /**
   * Sees to records that stayed because what they name is later than what was written. They may have been changed meanwhile; or be
   * of a history that was lost, under a number that this one has come to by now, or has not: else they would stay for good.
   * @param stayed the highest revision of them
   */
  async #replaceStrange(stayed: number, names: readonly string[]): Promise<void> {
    const { database, store, newGeneration, lease } = this.#options;
    for (let highest = stayed; highest > 0;) {
      const { generation, revision } = await readHistory(database);
      if (highest > revision) {
        const begun = { generation: laterGeneration(newGeneration(), [generation]), revision: highest };
        await lease.finish({ names: [], revision: 0 }, (transaction) => beginGeneration(transaction, begun));
        throw new Error(
          `the store has a record of revision ${highest}, which the database has not come to; all is written anew`,
        );
      }
      highest = await store.rewrite(await currentRecords(database, names), revision, generation);
    }
  }
}
