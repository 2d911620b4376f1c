import type { PreloadState } from '../../../gateway/ports.js';
import { AheadReader, type AheadReaderOptions, rest } from './ahead-reader.js';

/** Events for what prevents a complete preload. Each is emitted once per occurrence. */
export interface PreloadEvents {
  /** @param seen the number of keys in the store, in all environments */
  readonly onFull: (seen: number) => void;
  readonly onRefused: (refusal: Error) => void;
}

/** Above this number of changed records, one scan of all keys is cheaper. */
const mostWaiting = 10_000;
/** Changes come in bursts. */
const gatherMilliseconds = 20;
/** Delay of a new scan after the cache was dropped: requests first read the records that they need. */
const rescanMilliseconds = 1_000;
const retryMilliseconds = 250;

/**
 * Keeps all keys of the gateway's environment and their merchants in the cache, before any request needs them. Reads
 * changed records again.
 * An outage of Redis then refuses no such key. Preloading evicts no record that a request has read.
 */
export class Preload {
  readonly #reader: AheadReader;
  readonly #events: PreloadEvents;
  #state: PreloadState = 'loading';
  #reported: PreloadState | null = null;
  #seen = 0;
  #needsScan = true;
  #isRunning = false;
  #isClosed = false;

  constructor(options: AheadReaderOptions, events: PreloadEvents) {
    this.#reader = new AheadReader(options);
    this.#events = events;
    this.#begin();
  }

  get state(): PreloadState {
    return this.#state;
  }

  /** Number of keys that the newest scan has found so far. */
  get seen(): number {
    return this.#seen;
  }

  /** The cache was dropped: load all records again. */
  restart(): void {
    this.#state = 'loading';
    this.#requestScan();
    this.#begin();
  }

  /** These records are new, or were dropped: load them soon. */
  changed(lookupIds: readonly string[], merchantIds: readonly string[]): void {
    this.#reader.add(lookupIds, merchantIds);
    if (this.#reader.waiting > mostWaiting) this.#requestScan();
    this.#begin();
  }

  close(): void {
    this.#isClosed = true;
    this.#reader.close();
  }

  #hasWork(): boolean {
    if (this.#isClosed || this.#state === 'refused') return false;
    return this.#needsScan || this.#reader.waiting > 0;
  }

  /** Whether the scan is pointless because the cache was dropped again, or the preload was closed. */
  get #hasToEnd(): boolean {
    return this.#needsScan || this.#isClosed;
  }

  #requestScan(): void {
    this.#needsScan = true;
    this.#reader.clear();
  }

  #begin(): void {
    if (this.#isRunning || !this.#hasWork()) return;
    this.#isRunning = true;
    void this.#run();
  }

  async #run(): Promise<void> {
    await rest(gatherMilliseconds);
    while (this.#hasWork()) {
      try {
        if (this.#needsScan) await this.#scanAll();
        else await this.#reader.readWaiting();
      } catch (error) {
        if (this.#isRefused(error)) break;
      }
      if (!this.#hasWork()) this.#settle();
      // Some records could not be read, or have just changed.
      else await rest(retryMilliseconds);
    }
    this.#isRunning = false;
  }

  #settle(): void {
    this.#state = this.#reader.isFull ? 'full' : 'complete';
    if (this.#state === 'full' && this.#reported !== 'full') this.#events.onFull(this.#seen);
    this.#reported = this.#state;
  }

  /**
   * Most errors are temporary, such as an outage or a failover: unread records are tried again. A missing ACL right is
   * not.
   * @returns whether Redis refused the read with NOPERM
   */
  #isRefused(error: unknown): boolean {
    if (!(error instanceof Error) || !error.message.startsWith('NOPERM ')) return false;
    this.#state = 'refused';
    if (this.#reported !== 'refused') this.#events.onRefused(error);
    this.#reported = 'refused';
    return true;
  }

  async #scanAll(): Promise<void> {
    if (this.#seen > 0) await rest(rescanMilliseconds);
    this.#needsScan = false;
    this.#seen = 0;
    try {
      for await (const ids of this.#reader.keysInStore()) {
        if (this.#hasToEnd) return;
        this.#seen += ids.length;
        // Once the cache is full, the remaining keys are only counted.
        if (!this.#reader.isFull) await this.#readOnWay(ids);
      }
    } catch (error) {
      this.#needsScan = true;
      throw error;
    }
  }

  /** A failed batch does not end the scan: its records stay queued. */
  async #readOnWay(ids: readonly string[]): Promise<void> {
    try {
      await this.#reader.readKeys(ids);
    } catch (error) {
      if (this.#isRefused(error)) throw error;
      await rest(retryMilliseconds);
    }
  }
}
