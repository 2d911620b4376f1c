import { setTimeout as wait } from 'node:timers/promises';
import { KeyStoreUnavailable } from '../../../gateway/ports.js';
import type { CompiledKey, CompiledMerchant } from '../../../gateway/records.js';
import type { Environment } from '../../../policy/key-format.js';
import type { RecordCache } from '../../cache/record-cache.js';
import type { RecordNames } from '../record-names.js';
import type { RecordsLink } from '../records-link.js';
import type { Standing } from './standing.js';

/** Length of one slice of work. With the pauses, preloading takes at most a twenty-fifth of the time. */
const sliceMilliseconds = 0.5;
const shortestPauseMilliseconds = 12;
const longestPauseMilliseconds = 100;
/** Event-loop lag above which the process counts as busy. The next pause is then a multiple of the lag. */
const lateMilliseconds = 1.5;
const pausePerLateness = 4;

/** Splits background work into slices, so that requests are not delayed. */
class Pace {
  #pauseMilliseconds = shortestPauseMilliseconds;
  #sliceBegan = 0;

  /** Begins a slice. */
  begin(): void {
    this.#sliceBegan = performance.now();
  }

  /** Whether the slice has used up its time. */
  get isOver(): boolean {
    return performance.now() - this.#sliceBegan > sliceMilliseconds;
  }

  /** Pauses so that requests can run, then begins the next slice. Event-loop lag lengthens the next pause. */
  async pause(): Promise<void> {
    const began = performance.now();
    await rest(this.#pauseMilliseconds);
    this.begin();
    const lateness = this.#sliceBegan - began - this.#pauseMilliseconds;
    const next = lateness > lateMilliseconds ? lateness * pausePerLateness : this.#pauseMilliseconds / 2;
    this.#pauseMilliseconds = Math.min(longestPauseMilliseconds, Math.max(shortestPauseMilliseconds, next));
  }
}

/** Waits on an unreferenced timer, which does not keep the process alive. */
export async function rest(milliseconds: number): Promise<void> {
  await wait(milliseconds, undefined, { ref: false });
}

/** What the reader depends on. */
export interface AheadReaderOptions {
  readonly link: Pick<RecordsLink, 'names' | 'readSome'>;
  readonly standing: Pick<Standing, 'fresh' | 'proof'>;
  readonly names: RecordNames;
  /** Keys of the other environment are not cached: no request of this gateway needs them. */
  readonly environment: Environment;
  readonly keys: RecordCache<CompiledKey>;
  readonly merchants: RecordCache<CompiledMerchant>;
  /** Maximum number of cached keys, and of cached merchants. */
  readonly maxEntries: number;
  /**
   * Called with the lookup ids of the keys in the store, page by page, including keys that do not fit into the cache.
   */
  readonly onSeen: (lookupIds: readonly string[]) => void;
  /** Parses a record's text. Returns an error if the record cannot be used. */
  readonly compileKey: (name: string, text: string) => CompiledKey | KeyStoreUnavailable | null;
  readonly compileMerchant: (id: string, text: string) => CompiledMerchant | KeyStoreUnavailable | null;
}

const textsAtATime = 100;
/** How often to check whether records can be read. */
const pollMilliseconds = 100;

/** One type of record: its cache, and how to read it. */
interface Kind<Compiled extends object> {
  readonly cache: RecordCache<Compiled>;
  readonly nameOf: (id: string) => string;
  readonly compile: (id: string, text: string) => Compiled | KeyStoreUnavailable | null;
  /** The ids still to be read. */
  readonly waiting: Set<string>;
  isFull: boolean;
}

/**
 * Loads records into the cache before a request needs them.
 * It works in short slices so that requests are not delayed. It reads only from a trusted server, while invalidation
 * notices arrive.
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

  /** Number of records that wait to be read. */
  get waiting(): number {
    return this.#keys.waiting.size + this.#merchants.waiting.size;
  }

  /** Whether a record did not fit into the cache. */
  get isFull(): boolean {
    return this.#keys.isFull || this.#merchants.isFull;
  }

  /** Queues these records for reading. */
  add(lookupIds: readonly string[], merchantIds: readonly string[]): void {
    for (const id of lookupIds) this.#keys.waiting.add(id);
    for (const id of merchantIds) this.#merchants.waiting.add(id);
  }

  /** Empties both queues, and assumes that the caches have room again. */
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
   * The lookup ids of the keys in the store, page by page, with pauses for requests.
   * @returns keys of all environments; an id may occur more than once
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

  /** Reads the queued records. A record that cannot be read stays in its queue. */
  async readWaiting(): Promise<void> {
    await this.readKeys([...this.#keys.waiting]);
    await this.#readAll(this.#merchants, [...this.#merchants.waiting]);
  }

  /** Reads keys and then the merchants that they name. A record that cannot be read stays in its queue. */
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
      for (const id of ids) kind.waiting.add(id); // also the keys that were read: their merchants were not
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
          throw new Error('the connection changed during the read; the records may come from another server');
        const text = texts[index];
        if (text === undefined) kind.waiting.add(id);
        const record = typeof text === 'string' ? kind.compile(id, text) : null;
        if (record === null || this.#isForeign(record)) continue;
        if (!kind.cache.holdAhead(ahead, id, record)) kind.isFull = true;
        else if (kind.cache.peek(id) === undefined) kind.waiting.add(id); // invalidated during the read
      }
    } finally {
      ahead.end();
    }
  }

  #isForeign(record: object): boolean {
    return 'environment' in record && record.environment !== this.#options.environment;
  }

  /** Resolves once records can be read and cached. */
  async #turn(): Promise<void> {
    const { standing } = this.#options;
    await this.#pace.pause();
    while (!this.#isClosed && (!standing.fresh || standing.proof === null)) await rest(pollMilliseconds);
  }
}
