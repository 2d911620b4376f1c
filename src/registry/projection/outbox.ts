import type { Position, RecordsStore, StoreEntry } from '../../gateway/store-ports.js';
import type { RegistryDatabase } from '../registry-database.js';
import { currentRecords } from './current-records.js';
import { beginGeneration, laterGeneration, readHistory, unnamedChange } from './history.js';
import type { Lease } from './lease.js';

/** The next changes to project: whole changes in order, with the position of the newest. */
export interface Batch extends Position {
  readonly names: readonly string[];
}

const mostRows = 200;

/** The oldest unprojected changes after a revision; null without any. */
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
  // The limit may have split the last change, and a change is published whole. A change has few records.
  const last = await database.selectFrom('outbox').selectAll().where('revision', '=', revision).execute();
  const change = last.find((row) => row.change !== null)?.change ?? unnamedChange;
  return { revision, change, names: [...new Set([...rows, ...last].map(({ name }) => name))] };
}

/** Removes the changes up to this revision from the outbox once all are projected. */
export async function removeChanges(database: RegistryDatabase, revision: number): Promise<void> {
  await database.deleteFrom('outbox').where('revision', '<=', revision).execute();
}

/** The revision of the oldest unprojected change; null without any. */
export async function oldestWaiting(database: RegistryDatabase): Promise<number | null> {
  const row = await database
    .selectFrom('outbox')
    .select((it) => it.fn.min('revision').as('revision'))
    .executeTakeFirst();
  return row?.revision ?? null;
}

/** Whether a change up to this revision is still unprojected. */
export async function isWaiting(database: RegistryDatabase, revision: number): Promise<boolean> {
  const row = await database
    .selectFrom('outbox')
    .select('revision')
    .where('revision', '<=', revision)
    .limit(1)
    .executeTakeFirst();
  return row !== undefined;
}

/** Options of the writer. */
interface RecordsWriterOptions {
  readonly database: RegistryDatabase;
  readonly store: Pick<RecordsStore, 'write' | 'rewrite'>;
  readonly lease: Pick<Lease, 'finish'>;
  /** Creates the name of a new generation. */
  readonly newGeneration: () => string;
}

/** Writes records, and replaces records of a lost history. */
export class RecordsWriter {
  readonly #options: RecordsWriterOptions;

  constructor(options: RecordsWriterOptions) {
    this.#options = options;
  }

  /** Writes the current records of some changes. @throws Error as `rewrite` */
  async write({ names, revision }: Batch): Promise<void> {
    const { database, store } = this.#options;
    const { generation } = await readHistory(database);
    const records = await currentRecords(database, names);
    await this.#replaceLost(await store.write(records, revision, generation), names);
  }

  /**
   * Rewrites records.
   * @param revision they replace records up to this revision
   * @throws Error if the store has a record of a later change than the database; the next pass rewrites everything
   */
  async rewrite(entries: readonly StoreEntry[], revision: number): Promise<void> {
    const { generation } = await readHistory(this.#options.database);
    const stayed = await this.#options.store.rewrite(entries, revision, generation);
    await this.#replaceLost(
      stayed,
      entries.map(({ name }) => name),
    );
  }

  /**
   * Handles records that the store kept because their revision is later than the write. Either they were changed
   * meanwhile, or they belong to a lost history and would otherwise stay forever. A lost history may reuse revisions of
   * this one.
   * @param stayed the highest revision among them
   */
  async #replaceLost(stayed: number, names: readonly string[]): Promise<void> {
    const { database, store, newGeneration, lease } = this.#options;
    for (let highest = stayed; highest > 0;) {
      const { generation, revision } = await readHistory(database);
      if (highest > revision) {
        const begun = { generation: laterGeneration(newGeneration(), [generation]), revision: highest };
        await lease.finish({ names: [], revision: 0 }, (transaction) => beginGeneration(transaction, begun));
        throw new Error(
          `the store has a record of revision ${highest}, later than the database's newest change: rewriting all records`,
        );
      }
      highest = await store.rewrite(await currentRecords(database, names), revision, generation);
    }
  }
}
