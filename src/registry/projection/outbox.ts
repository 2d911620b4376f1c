import type { Position, RecordsStore, StoreEntry } from '../../gateway/store-ports.js';
import type { RegistryDatabase } from '../registry-database.js';
import { currentRecords } from './current-records.js';
import { beginGeneration, laterGeneration, readHistory, unnamedChange } from './history.js';
import type { Lease } from './lease.js';

/**
 * The next changes to write to the store: whole changes, oldest first. `revision` and `change` are the number and the
 * name of the newest change in the batch.
 */
export interface Batch extends Position {
  readonly names: readonly string[];
}

const mostRows = 200;

/**
 * Reads the oldest changes that are not yet written to the store and have a later revision (number) than `after`. Null
 * if there are no such changes.
 */
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
  // Reads all rows of the last change, because the limit might have cut some of them off. Gateways must see each change
  // as a whole.
  const last = await database.selectFrom('outbox').selectAll().where('revision', '=', revision).execute();
  const change = last.find((row) => row.change !== null)?.change ?? unnamedChange;
  return { revision, change, names: [...new Set([...rows, ...last].map(({ name }) => name))] };
}

/**
 * Deletes the changes up to this revision (number) from the outbox (table of changes that are not yet written to the
 * store). Call this after their records are written.
 */
export async function removeChanges(database: RegistryDatabase, revision: number): Promise<void> {
  await database.deleteFrom('outbox').where('revision', '<=', revision).execute();
}

/**
 * Returns the revision (number) of the oldest change that is not yet written to the store. Null if all changes are
 * written.
 */
export async function oldestWaiting(database: RegistryDatabase): Promise<number | null> {
  const row = await database
    .selectFrom('outbox')
    .select((it) => it.fn.min('revision').as('revision'))
    .executeTakeFirst();
  return row?.revision ?? null;
}

/** Whether any change up to this revision (number) is not yet written to the store. */
export async function isWaiting(database: RegistryDatabase, revision: number): Promise<boolean> {
  const row = await database
    .selectFrom('outbox')
    .select('revision')
    .where('revision', '<=', revision)
    .limit(1)
    .executeTakeFirst();
  return row !== undefined;
}

/** Dependencies of RecordsWriter. */
interface RecordsWriterOptions {
  readonly database: RegistryDatabase;
  readonly store: Pick<RecordsStore, 'write' | 'rewrite'>;
  readonly lease: Pick<Lease, 'finish'>;
  /** Creates the id of a new generation (a complete rewrite of the store). */
  readonly newGeneration: () => string;
}

/**
 * Writes records to the store. Also replaces records with a later revision (number of a change) than the database has:
 * these were written before the database was restored from a backup.
 */
export class RecordsWriter {
  readonly #options: RecordsWriterOptions;

  constructor(options: RecordsWriterOptions) {
    this.#options = options;
  }

  /**
   * Writes the current records of a batch of changes.
   * @throws Error if the store has a later change than the database
   */
  async write({ names, revision }: Batch): Promise<void> {
    const { database, store } = this.#options;
    const { generation } = await readHistory(database);
    const records = await currentRecords(database, names);
    await this.#replaceLost(await store.write(records, revision, generation), names);
  }

  /**
   * Writes records to the store again, although no change has altered them.
   * @param revision the highest revision (number of a change) of a stored record that may be replaced
   * @throws Error if the store has a record of a later change than the database; the next run of the projection
   * rewrites all records in this case
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
   * Handles records that the store did not overwrite, because its copies have a later revision (number of a change). If
   * the database has this revision, the record has changed meanwhile and is written again. Otherwise the database was
   * restored from a backup, and a new generation (complete rewrite) begins.
   * @param stayed the highest revision among the copies in the store
   */
  async #replaceLost(stayed: number, names: readonly string[]): Promise<void> {
    const { database, store, newGeneration, lease } = this.#options;
    for (let highest = stayed; highest > 0;) {
      const { generation, revision } = await readHistory(database);
      if (highest > revision) {
        const begun = { generation: laterGeneration(newGeneration(), [generation]), revision: highest };
        await lease.finish({ names: [], revision: 0 }, (transaction) => beginGeneration(transaction, begun));
        throw new Error(
          `the store has a record of revision ${highest}, but the newest change in the database is older: rewriting all records`,
        );
      }
      highest = await store.rewrite(await currentRecords(database, names), revision, generation);
    }
  }
}
