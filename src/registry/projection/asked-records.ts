import type { RecordAsk, RecordsStore, StoreEntry } from '../../gateway/store-ports.js';
import type { RegistryDatabase } from '../registry-database.js';
import { canBeKnown, currentRecords, merchantOf } from './current-records.js';
import { readHistory } from './history.js';
import type { Lease } from './lease.js';
import type { RecordsWriter } from './outbox.js';

/** What gateways are answered with. */
export interface AskedRecordsOptions {
  readonly database: RegistryDatabase;
  readonly store: Pick<RecordsStore, 'inbox'>;
  readonly writer: Pick<RecordsWriter, 'rewrite'>;
  readonly lease: Pick<Lease, 'keep'>;
}

/** What answering came to: there may be more to answer; there is not; or this process projects no more. */
export type AnswerStep = 'more' | 'idle' | 'lost';

/** Changes must not wait for those who ask. */
const mostAtOnce = 500;

/**
 * Answers gateways that do not find a record: it is looked up in the database by its name, and written again with its merchant, or there
 * is none. Of a record that may be missing, a gateway says "Invalid API Key" only after that.
 */
export class AskedRecords {
  readonly #options: AskedRecordsOptions;

  constructor(options: AskedRecordsOptions) {
    this.#options = options;
  }

  /**
   * Answers some of those who ask for what should be there.
   * @param restore writes what is missing, up to a revision; false where this process projects no more
   */
  async answer(restore: (entries: readonly StoreEntry[], revision: number) => Promise<boolean>): Promise<AnswerStep> {
    const { database, store } = this.#options;
    const asks = store.inbox?.take(mostAtOnce) ?? [];
    if (asks.length === 0) return 'idle';
    // Before the records are read: what is changed meanwhile is written with its change.
    const { generation, revision } = await readHistory(database);
    const { present, entries } = await this.#find(asks);
    if (!(await restore(entries, revision))) return 'lost';
    await store.inbox?.answer(asks, present, generation);
    return 'more';
  }

  /** Answers some of those who ask for what is not written yet. @returns false where this process projects no more */
  async answerWhileFilling(): Promise<boolean> {
    const { lease, writer } = this.#options;
    const step = await this.answer(async (entries, revision) => {
      await writer.rewrite(entries, revision);
      return lease.keep({ names: entries.map(({ name }) => name), revision });
    });
    return step !== 'lost';
  }

  async #find(asks: readonly RecordAsk[]): Promise<{ present: ReadonlySet<string>; entries: StoreEntry[] }> {
    const { database } = this.#options;
    const names = [...new Set(asks.map(({ record }) => record))].filter(canBeKnown);
    const found = (await currentRecords(database, names)).filter(({ value }) => value !== null);
    const present = new Set(found.map(({ name }) => name));
    // A key is of no use without its merchant.
    const merchants = new Set(found.flatMap((entry) => merchantOf(entry) ?? []).filter((name) => !present.has(name)));
    return { present, entries: [...(await currentRecords(database, [...merchants])), ...found] };
  }
}
