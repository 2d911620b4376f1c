import type { RecordRequest, RecordsStore, StoreEntry } from '../../gateway/store-ports.js';
import type { RegistryDatabase } from '../registry-database.js';
import { canBeKnown, currentRecords, merchantOf } from './current-records.js';
import { readHistory } from './history.js';
import type { Lease } from './lease.js';
import type { RecordsWriter } from './outbox.js';

/** Dependencies of RequestedRecords. */
export interface RequestedRecordsOptions {
  readonly database: RegistryDatabase;
  readonly store: Pick<RecordsStore, 'inbox'>;
  readonly writer: Pick<RecordsWriter, 'rewrite'>;
  readonly lease: Pick<Lease, 'keep'>;
}

/**
 * Result of a step. `more`: further requests could be pending; `idle`: no requests are pending; `lost`: another process
 * now writes to the store, or the store is no longer in the state that the database has recorded for it.
 */
export type ReplyStep = 'more' | 'idle' | 'lost';

/**
 * Maximum number of requests in a batch. Changes are written between two batches, so a larger batch would delay them.
 */
const mostAtOnce = 500;

/**
 * Handles requests of gateways for records that are missing in the store. If the database has the record, writes the
 * record to the store, and for a key also the record of the merchant. Otherwise replies that the record does not exist:
 * a gateway rejects a key as invalid only after such a reply.
 */
export class RequestedRecords {
  readonly #options: RequestedRecordsOptions;

  constructor(options: RequestedRecordsOptions) {
    this.#options = options;
  }

  /**
   * Replies to one batch of requests. Call this while the store has all records.
   * @param restore writes records to the store. `revision` is the number of the newest change before the records were
   * read. Returns false if another process now writes to the store, or if the store is no longer in its recorded state
   */
  async reply(restore: (entries: readonly StoreEntry[], revision: number) => Promise<boolean>): Promise<ReplyStep> {
    const { database, store } = this.#options;
    const asks = store.inbox?.take(mostAtOnce) ?? [];
    if (asks.length === 0) return 'idle';
    // Reads the revision (number of the newest change) before the records: a change that is made between the two reads
    // has a later revision and is written separately.
    const { generation, revision } = await readHistory(database);
    const { present, entries } = await this.#find(asks);
    if (!(await restore(entries, revision))) return 'lost';
    await store.inbox?.reply(asks, present, generation);
    return 'more';
  }

  /**
   * Replies to one batch of requests. Call this while a rebuild writes all records to the store.
   * @returns false if another process now writes to the store
   */
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
    // Adds the merchant of each key, because a gateway cannot use a key without its merchant.
    const merchants = new Set(found.flatMap((entry) => merchantOf(entry) ?? []).filter((name) => !present.has(name)));
    return { present, entries: [...(await currentRecords(database, [...merchants])), ...found] };
  }
}
