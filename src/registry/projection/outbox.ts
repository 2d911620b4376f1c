import type { Clock, Position, RecordsStore, StoreEntry } from '../../gateway/store-ports.js';
import type { RegistryDatabase } from '../registry-database.js';
import { noteRestore } from '../restores/restores.js';
import { currentRecords } from './current-records.js';
import { beginGeneration, laterGeneration, readHistory, unnamedChange } from './history.js';
import { type Lease, noRecords } from './lease.js';

/**
 * The next changes to write to the store, oldest first and each of them whole. `names` are the names of the changed
 * records. `revision` and `change` are the number and the id of the newest change in the batch.
 */
export interface Batch extends Position {
  readonly names: readonly string[];
}

const mostRows = 200;

/**
 * Reads the oldest changes that are not yet written to the store and whose `revision` (number) is higher than `after`.
 * Null if there are no such changes.
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
 * Deletes the changes up to this revision from the outbox, the table of changes that are not yet written to the store.
 * Call this after the records of these changes are written.
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

/**
 * Whether all changes up to this revision (number) are written to the store. False if the database does not have the
 * change with this revision, for example after a failover to a replica that lacks it.
 */
export async function isWritten(database: RegistryDatabase, revision: number): Promise<boolean> {
  const row = await database
    .selectFrom('revision')
    .select((it) => [
      'value',
      it.selectFrom('outbox').select('outbox.revision').where('outbox.revision', '<=', revision).limit(1).as('waiting'),
    ])
    .executeTakeFirstOrThrow();
  return row.value >= revision && row.waiting === null;
}

/** Dependencies of RecordsWriter. */
interface RecordsWriterOptions {
  readonly database: RegistryDatabase;
  readonly store: Pick<RecordsStore, 'write' | 'rewrite'>;
  readonly clock: Clock;
  readonly lease: Pick<Lease, 'finish'>;
  /** Creates the id of a new generation. Each complete rewrite of the store begins a new generation. */
  readonly newGeneration: () => string;
}

/**
 * Writes records to the store. If the store has a record with a later revision than the newest change in the database,
 * the database was restored from a backup. The writer then begins a new generation, so that all records are rewritten.
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
   * Writes or deletes records in the store although no change has altered them, for example in a rebuild of the store.
   * @param revision records in the store with a higher revision are not replaced
   * @throws Error if the store has a record of a later change than the database. The next run of the projection then
   *   rewrites all records
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
   * Handles records that the store did not overwrite, because its copies have a later revision:
   * 1. If the database has a change with a copy's revision, the records have changed meanwhile and are written again.
   * 2. If all changes in the database are older, the database was restored from a backup. A new generation begins, and
   *    the list of restores gets an entry.
   * @param stayed the highest revision of these copies; 0 if the store has overwritten all records
   */
  async #replaceLost(stayed: number, names: readonly string[]): Promise<void> {
    const { database, store, clock, newGeneration, lease } = this.#options;
    for (let highest = stayed; highest > 0;) {
      const { generation, revision } = await readHistory(database);
      if (highest > revision) {
        const begun = { generation: laterGeneration(newGeneration(), [generation]), revision: highest };
        // Makes both calls in one transaction, because a crash between them would hide the restore: `beginGeneration`
        // raises the database's revision to `highest`, so a later comparison of the two would find no difference.
        await lease.finish(noRecords, async (transaction) => {
          await beginGeneration(transaction, begun);
          await noteRestore({ database: transaction, clock }, true);
        });
        throw new Error(
          `the store has a record of revision ${highest}, newer than all changes in the database: either the database was restored from a backup, or a Redis client other than the registry wrote the record. Rewriting all records`,
        );
      }
      highest = await store.rewrite(await currentRecords(database, names), revision, generation);
    }
  }
}
