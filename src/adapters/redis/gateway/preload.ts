import type { PreloadState } from '../../../gateway/record-key-store.js';
import { AheadReader, type AheadReaderOptions, rest } from './ahead-reader.js';

/**
 * A preload loads all records into the cache. These callbacks report why a preload is incomplete. If consecutive
 * preloads end for the same reason, only the first is reported.
 */
export interface PreloadEvents {
  /**
   * Called when the cache is full.
   * @param seen the number of keys in the store, in all environments
   */
  readonly onFull: (seen: number) => void;
  /** Called when the gateway's Redis user lacks the right to read records (NOPERM). */
  readonly onRefused: (refusal: Error) => void;
}

/** With more changed records than this, one scan of all keys is cheaper than single reads. */
const mostWaiting = 10_000;
/** Delay before changed records are read, because changes arrive in bursts. */
const gatherMilliseconds = 20;
/** Delay of a new scan after the cache was dropped, so that requests can first read the records that they need. */
const rescanMilliseconds = 1_000;
const retryMilliseconds = 250;

/**
 * Keeps all keys of the gateway's environment and their merchants in the cache, so that valid keys work during an
 * outage of Redis. Reads changed records again. Evicts no record that a request has read.
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

  /** Number of keys that the current or last scan has found. */
  get seen(): number {
    return this.#seen;
  }

  /** Loads all records again. Must be called after the cache was dropped. */
  restart(): void {
    this.#state = 'loading';
    this.#requestScan();
    this.#begin();
  }

  /** Loads these records soon. Must be called for records that are new or were dropped from the cache. */
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

  /** Whether the running scan must stop, because a new scan was requested or the preload was closed. */
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
      // Some records could not be read, or have just changed: try again.
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
   * Whether Redis refused the read with NOPERM. The gateway's Redis user then lacks an ACL right, so a retry is
   * useless, and this method reports the refusal. Other errors are temporary, such as an outage or a failover.
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

  /**
   * Reads the keys of one page of the scan. If the read fails, the records are queued for a later attempt and the scan
   * continues. Only NOPERM (a missing ACL right) ends the scan.
   */
  async #readOnWay(ids: readonly string[]): Promise<void> {
    try {
      await this.#reader.readKeys(ids);
    } catch (error) {
      if (this.#isRefused(error)) throw error;
      await rest(retryMilliseconds);
    }
  }
}
