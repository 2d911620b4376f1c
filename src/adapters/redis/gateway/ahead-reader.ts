import { setTimeout as wait } from 'node:timers/promises';
import { KeyStoreUnavailable } from '../../../gateway/ports.js';
import type { CompiledKey, CompiledMerchant } from '../../../gateway/records.js';
import type { Environment } from '../../../policy/key-format.js';
import type { RecordCache } from '../../cache/record-cache.js';
import type { RecordNames } from '../record-names.js';
import type { RecordsLink } from '../records-link.js';
import type { Standing } from './standing.js';

/** For how long work is done before requests have their turn: with the pauses, a tenth of the time at most. */
const sliceMilliseconds = 0.5;
const shortestPauseMilliseconds = 5;
const longestPauseMilliseconds = 100;
/** A pause that ends later than this shows that the process is busy: the next ones are longer by so many times that. */
const lateMilliseconds = 1.5;
const pausePerLateness = 4;

/** Spreads work in the background so that requests beside it are not held up. */
class Pace {
  #pauseMilliseconds = shortestPauseMilliseconds;
  #sliceBegan = 0;

  /** Begins a piece of work. */
  begin(): void {
    this.#sliceBegan = performance.now();
  }

  /** Whether that has gone on for long enough. */
  get isOver(): boolean {
    return performance.now() - this.#sliceBegan > sliceMilliseconds;
  }

  /** Lets requests have their turn, for the longer the later that ends; after it the next piece of work begins. */
  async pause(): Promise<void> {
    const began = performance.now();
    await rest(this.#pauseMilliseconds);
    this.begin();
    const lateness = this.#sliceBegan - began - this.#pauseMilliseconds;
    const next = lateness > lateMilliseconds ? lateness * pausePerLateness : this.#pauseMilliseconds / 2;
    this.#pauseMilliseconds = Math.min(longestPauseMilliseconds, Math.max(shortestPauseMilliseconds, next));
  }
}

/** Waits, and keeps no process from ending. */
export async function rest(milliseconds: number): Promise<void> {
  await wait(milliseconds, undefined, { ref: false });
}

/** What records are read ahead with. */
export interface AheadReaderOptions {
  readonly link: Pick<RecordsLink, 'names' | 'readSome'>;
  readonly standing: Pick<Standing, 'fresh' | 'proof'>;
  readonly names: RecordNames;
  /** No request of this gateway needs the keys of another one. */
  readonly environment: Environment;
  readonly keys: RecordCache<CompiledKey>;
  readonly merchants: RecordCache<CompiledMerchant>;
  /** Of keys, and of merchants. */
  readonly maxEntries: number;
  /** Told of the keys that the store has, some at a time, also of those that do not fit. */
  readonly onSeen: (lookupIds: readonly string[]) => void;
  /** The record in a text, or why it cannot be used. */
  readonly compileKey: (name: string, text: string) => CompiledKey | KeyStoreUnavailable | null;
  readonly compileMerchant: (id: string, text: string) => CompiledMerchant | KeyStoreUnavailable | null;
}

const textsAtATime = 100;
/** How often it is looked whether something can be read. */
const lookMilliseconds = 100;

/** One kind of records: where they are held, and how they are read. */
interface Kind<Compiled extends object> {
  readonly cache: RecordCache<Compiled>;
  readonly nameOf: (id: string) => string;
  readonly compile: (id: string, text: string) => Compiled | KeyStoreUnavailable | null;
  /** What is to be read. */
  readonly waiting: Set<string>;
  isFull: boolean;
}

/**
 * Reads records that nobody has asked for into the memory for those that somebody has: in small steps, between which requests have
 * their turn, and only from a server that is believed, while its changes are heard.
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

  /** How many records wait to be read. */
  get waiting(): number {
    return this.#keys.waiting.size + this.#merchants.waiting.size;
  }

  /** Whether any record was not held for want of room. */
  get isFull(): boolean {
    return this.#keys.isFull || this.#merchants.isFull;
  }

  /** These are to be read. */
  add(lookupIds: readonly string[], merchantIds: readonly string[]): void {
    for (const id of lookupIds) this.#keys.waiting.add(id);
    for (const id of merchantIds) this.#merchants.waiting.add(id);
  }

  /** Nothing waits any more, and what did not fit may fit now. */
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
   * The keys that the store has, some at a time, and in between time for requests.
   * @returns the same keys more than once, perhaps, and those of all environments
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

  /** Reads what waits, or leaves it waiting. */
  async readWaiting(): Promise<void> {
    await this.readKeys([...this.#keys.waiting]);
    await this.#readAll(this.#merchants, [...this.#merchants.waiting]);
  }

  /** Reads keys, and the merchants that they name. What cannot be read waits. */
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
    if (kind.isFull && kind.cache.figures.known.entries >= this.#options.maxEntries) return;
    const wanted = ids.filter((id) => kind.cache.peek(id) === undefined);
    try {
      for (let start = 0; start < wanted.length; start += textsAtATime)
        await this.#read(kind, wanted.slice(start, start + textsAtATime));
    } catch (error) {
      for (const id of ids) kind.waiting.add(id); // also what was read: what it names was not
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
        if (proof === null || standing.proof !== proof) throw new Error('what was read may be another server’s');
        const text = texts[index];
        if (text === undefined) kind.waiting.add(id);
        const record = typeof text === 'string' ? kind.compile(id, text) : null;
        if (record === null || this.#isForeign(record)) continue;
        if (!kind.cache.holdAhead(ahead, id, record)) kind.isFull = true;
        else if (kind.cache.peek(id) === undefined) kind.waiting.add(id); // it could not be held at this moment
      }
    } finally {
      ahead.end();
    }
  }

  #isForeign(record: object): boolean {
    return 'environment' in record && record.environment !== this.#options.environment;
  }

  /** Ends when something can be read that may be held. */
  async #turn(): Promise<void> {
    const { standing } = this.#options;
    await this.#pace.pause();
    while (!this.#isClosed && (!standing.fresh || standing.proof === null)) await rest(lookMilliseconds);
  }
}
