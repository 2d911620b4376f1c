import { setTimeout as wait } from 'node:timers/promises';
import { KeyStoreUnavailable } from '../../../gateway/key-store.js';
import type { CompiledKey, CompiledMerchant } from '../../../gateway/records.js';
import type { Environment } from '../../../policy/key-format.js';
import type { RecordCache } from '../../cache/record-cache.js';
import type { RecordNames } from '../record-names.js';
import type { RecordsLink } from '../records-link.js';
import type { Standing } from './standing.js';

/**
 * The length of one slice of preloading, which reads records before requests need them. The shortest pause is 24 times
 * as long as a slice, so preloading keeps the process busy for at most 40 ms per second.
 */
const sliceMilliseconds = 0.5;
const shortestPauseMilliseconds = 12;
const longestPauseMilliseconds = 100;
/**
 * If a timer is late by more than this, the process is busy. The next pause is then `pausePerLateness` times the
 * lateness.
 */
const lateMilliseconds = 1.5;
const pausePerLateness = 4;

/** Splits background work into short slices, so that it does not delay requests. */
class Pace {
  #pauseMilliseconds = shortestPauseMilliseconds;
  #sliceBegan = 0;

  /** Begins a slice of work. */
  begin(): void {
    this.#sliceBegan = performance.now();
  }

  /** Whether the current slice of work has used up its time. */
  get isOver(): boolean {
    return performance.now() - this.#sliceBegan > sliceMilliseconds;
  }

  /** Pauses so that requests can run, then begins the next slice. If the timer fires late, the next pause is longer. */
  async pause(): Promise<void> {
    const began = performance.now();
    await rest(this.#pauseMilliseconds);
    this.begin();
    const lateness = this.#sliceBegan - began - this.#pauseMilliseconds;
    const next = lateness > lateMilliseconds ? lateness * pausePerLateness : this.#pauseMilliseconds / 2;
    this.#pauseMilliseconds = Math.min(longestPauseMilliseconds, Math.max(shortestPauseMilliseconds, next));
  }
}

/** Waits with a timer that does not keep the process alive. */
export async function rest(milliseconds: number): Promise<void> {
  await wait(milliseconds, undefined, { ref: false });
}

/** Dependencies and callbacks of an `AheadReader`. */
export interface AheadReaderOptions {
  readonly link: Pick<RecordsLink, 'names' | 'readSome'>;
  readonly standing: Pick<Standing, 'fresh' | 'proof'>;
  readonly names: RecordNames;
  /**
   * The gateway's environment. Keys of another environment are not cached, because no request of this gateway needs
   * them.
   */
  readonly environment: Environment;
  readonly keys: RecordCache<CompiledKey>;
  readonly merchants: RecordCache<CompiledMerchant>;
  /** Maximum number of records in each of the two caches, of keys and of merchants. */
  readonly maxEntries: number;
  /**
   * Called with the lookup ids of all keys in the store, page by page. Includes keys that do not fit into the cache.
   */
  readonly onSeen: (lookupIds: readonly string[]) => void;
  /** Parses the text of a key record. Returns an error if the record cannot be used. */
  readonly compileKey: (name: string, text: string) => CompiledKey | KeyStoreUnavailable | null;
  readonly compileMerchant: (id: string, text: string) => CompiledMerchant | KeyStoreUnavailable | null;
}

const textsAtATime = 100;
/** While records cannot be read, the reader checks at this interval whether they can be read again. */
const pollMilliseconds = 100;

/** The cache, the queue and the parser for one type of record (key or merchant). */
interface Kind<Compiled extends object> {
  readonly cache: RecordCache<Compiled>;
  readonly nameOf: (id: string) => string;
  readonly compile: (id: string, text: string) => Compiled | KeyStoreUnavailable | null;
  /** The ids that are queued for reading. */
  readonly waiting: Set<string>;
  isFull: boolean;
}

/**
 * Loads records into the cache before a request needs them, in short slices so that requests are not delayed. Pauses
 * while the server is not proved to be the master, or while invalidation messages do not arrive.
 */
export class AheadReader {
  readonly #options: AheadReaderOptions;
  readonly #keys: Kind<CompiledKey>;
  readonly #merchants: Kind<CompiledMerchant>;
  readonly #pace = new Pace();
  #isClosed = false;

  constructor(options: AheadReaderOptions) {
    const { names, keys, merchants, compileKey, compileMerchant } = options;
    this.#options = options;
    this.#keys = {
      ...{ cache: keys, nameOf: (id) => names.key(id), waiting: new Set(), isFull: false },
      compile: (id, text) => compileKey(names.key(id), text),
    };
    this.#merchants = {
      ...{ cache: merchants, nameOf: (id) => names.merchant(id), waiting: new Set(), isFull: false },
      compile: compileMerchant,
    };
  }

  /** Number of queued records. */
  get waiting(): number {
    return this.#keys.waiting.size + this.#merchants.waiting.size;
  }

  /** Whether a record did not fit into its cache. */
  get isFull(): boolean {
    return this.#keys.isFull || this.#merchants.isFull;
  }

  /** Queues these records for reading. */
  add(lookupIds: readonly string[], merchantIds: readonly string[]): void {
    for (const id of lookupIds) this.#keys.waiting.add(id);
    for (const id of merchantIds) this.#merchants.waiting.add(id);
  }

  /** Empties both queues, and assumes that the caches have free space again. */
  clear(): void {
    for (const kind of [this.#keys, this.#merchants]) {
      kind.waiting.clear();
      kind.isFull = false;
    }
  }

  close(): void {
    this.#isClosed = true;
  }

  /**
   * Scans the store for the lookup ids of all keys, page by page, with pauses for requests.
   * @returns pages of lookup ids, for keys of all environments; an id can occur more than once
   */
  async *keysInStore(): AsyncGenerator<readonly string[]> {
    await this.#turn();
    for await (const names of this.#options.link.names(this.#options.names.key(''))) {
      const lookupIds = this.#options.names.lookupIdsOf(names);
      this.#options.onSeen(lookupIds);
      yield lookupIds;
      await this.#turn();
    }
  }

  /** Reads the queued records. A record that cannot be read is queued again. */
  async readWaiting(): Promise<void> {
    await this.readKeys([...this.#keys.waiting]);
    await this.#readAll(this.#merchants, [...this.#merchants.waiting]);
  }

  /** Reads keys, then the merchants to which they belong. A record that cannot be read is queued again. */
  async readKeys(ids: readonly string[]): Promise<void> {
    await this.#readAll(this.#keys, ids);
    const named = new Set<string>();
    for (const id of ids) {
      const key = this.#keys.cache.peek(id);
      if (key !== undefined && !(key instanceof KeyStoreUnavailable)) named.add(key.merchantId);
    }
    await this.#readAll(this.#merchants, [...named]);
  }

  async #readAll<Compiled extends object>(kind: Kind<Compiled>, ids: readonly string[]): Promise<void> {
    for (const id of ids) kind.waiting.delete(id);
    if (kind.isFull && kind.cache.stats.known.entries >= this.#options.maxEntries) return;
    const wanted = ids.filter((id) => kind.cache.peek(id) === undefined);
    try {
      for (let start = 0; start < wanted.length; start += textsAtATime)
        await this.#read(kind, wanted.slice(start, start + textsAtATime));
    } catch (error) {
      // Queue all ids again, even those of keys that were read, because the merchants of these keys were not read yet.
      for (const id of ids) kind.waiting.add(id);
      throw error;
    }
  }

  async #read<Compiled extends object>(kind: Kind<Compiled>, ids: readonly string[]): Promise<void> {
    await this.#turn();
    const { link, standing } = this.#options;
    const { proof } = standing;
    const ahead = kind.cache.readAhead();
    try {
      const texts = await link.readSome(ids.map(kind.nameOf));
      this.#pace.begin();
      for (const [index, id] of ids.entries()) {
        if (this.#pace.isOver) await this.#pace.pause();
        if (proof === null || standing.proof !== proof)
          throw new Error(
            'the connection to Redis was reopened during the read, so the records may come from another server',
          );
        const text = texts[index];
        if (text === undefined) kind.waiting.add(id);
        const record = typeof text === 'string' ? kind.compile(id, text) : null;
        if (record === null || this.#isForeign(record)) continue;
        if (!kind.cache.holdAhead(ahead, id, record)) kind.isFull = true;
        else if (kind.cache.peek(id) === undefined) kind.waiting.add(id); // the record was invalidated during the read
      }
    } finally {
      ahead.end();
    }
  }

  #isForeign(record: object): boolean {
    return 'environment' in record && record.environment !== this.#options.environment;
  }

  /** Pauses for requests, then waits until records can be read and cached. */
  async #turn(): Promise<void> {
    const { standing } = this.#options;
    await this.#pace.pause();
    while (!this.#isClosed && (!standing.fresh || standing.proof === null)) await rest(pollMilliseconds);
  }
}
