import type { RecordsStore, StoreEntry } from '../ports.js';
import type { RegistryDatabase } from '../registry-database.js';
import { currentRecords } from './current-records.js';
import { beginGeneration, laterGeneration, readHistory } from './history.js';
import type { Lease } from './lease.js';
import type { Batch } from './outbox.js';

/** What records are written with. */
export interface RecordsWriterOptions {
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
