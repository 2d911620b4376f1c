import type { RecordRequest, RecordsStore, StoreEntry } from '../../gateway/store-ports.js';
import type { RegistryDatabase } from '../registry-database.js';
import { canBeKnown, currentRecords, merchantOf } from './current-records.js';
import { readHistory } from './history.js';
import type { Lease } from './lease.js';
import type { RecordsWriter } from './outbox.js';

/** Options of the replies to gateways. */
export interface RequestedRecordsOptions {
  readonly database: RegistryDatabase;
  readonly store: Pick<RecordsStore, 'inbox'>;
  readonly writer: Pick<RecordsWriter, 'rewrite'>;
  readonly lease: Pick<Lease, 'keep'>;
}

/** Result of a step: `more` asks may wait, none wait (`idle`), or this process no longer projects (`lost`). */
export type ReplyStep = 'more' | 'idle' | 'lost';

/** Limits a batch, so that changes do not wait for asks. */
const mostAtOnce = 500;

/**
 * Replies to gateways that cannot find a record. Looks the record up in the database by its name and writes it again
 * with its merchant, or replies that the record does not exist. Only after that reply does a gateway respond with
 * "Invalid API Key" for a record that may be missing.
 */
export class RequestedRecords {
  readonly #options: RequestedRecordsOptions;

  constructor(options: RequestedRecordsOptions) {
    this.#options = options;
  }

  /**
   * Replies to some asks in a filled store.
   * @param restore writes missing records, up to a revision; returns false if this process no longer projects
   */
  async reply(restore: (entries: readonly StoreEntry[], revision: number) => Promise<boolean>): Promise<ReplyStep> {
    const { database, store } = this.#options;
    const asks = store.inbox?.take(mostAtOnce) ?? [];
    if (asks.length === 0) return 'idle';
    // Read the history before the records: a later change writes its own records.
    const { generation, revision } = await readHistory(database);
    const { present, entries } = await this.#find(asks);
    if (!(await restore(entries, revision))) return 'lost';
    await store.inbox?.reply(asks, present, generation);
    return 'more';
  }

  /** Replies to some asks while the store is being filled. @returns false if this process no longer projects */
  async replyWhileFilling(): Promise<boolean> {
    const { lease, writer } = this.#options;
    const step = await this.reply(async (entries, revision) => {
      await writer.rewrite(entries, revision);
      return lease.keep({ names: entries.map(({ name }) => name), revision });
    });
    return step !== 'lost';
  }

  async #find(asks: readonly RecordRequest[]): Promise<{ present: ReadonlySet<string>; entries: StoreEntry[] }> {
    const { database } = this.#options;
    const names = [...new Set(asks.map(({ record }) => record))].filter(canBeKnown);
    const found = (await currentRecords(database, names)).filter(({ value }) => value !== null);
    const present = new Set(found.map(({ name }) => name));
    // A gateway cannot use a key without its merchant.
    const merchants = new Set(found.flatMap((entry) => merchantOf(entry) ?? []).filter((name) => !present.has(name)));
    return { present, entries: [...(await currentRecords(database, [...merchants])), ...found] };
  }
}
