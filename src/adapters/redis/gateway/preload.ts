import type { PreloadState } from '../../../gateway/ports.js';
import { AheadReader, type AheadReaderOptions, rest } from './ahead-reader.js';

/** Told of what keeps a gateway from holding every record, once until that is over. */
export interface PreloadEvents {
  /** @param seen how many keys the store has, of all environments */
  readonly onFull: (seen: number) => void;
  readonly onRefused: (refusal: Error) => void;
}

/** More changed records are found by looking at all of them. */
const mostWaiting = 10_000;
/** Changes come in groups. */
const gatherMilliseconds = 20;
/** When everything was dropped, requests ask for what they need first. */
const lookAgainMilliseconds = 1_000;
const retryMilliseconds = 250;

/**
 * Has a gateway hold all keys of its environment, and the merchants that they name, before anybody asks for them, and again what
 * was changed: an outage of Redis then refuses none of them. No record that a request asked for has to go for that.
 */
export class Preload {
  readonly #reader: AheadReader;
  readonly #events: PreloadEvents;
  #state: PreloadState = 'loading';
  #told: PreloadState | null = null;
  #seen = 0;
  #isToLook = true;
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

  /** How many keys the newest look at the whole store came upon, so far. */
  get seen(): number {
    return this.#seen;
  }

  /** Everything held was dropped: it is read anew. */
  restart(): void {
    this.#state = 'loading';
    this.#lookAgain();
    this.#begin();
  }

  /** These records were dropped, or are new: they are read soon. */
  changed(lookupIds: readonly string[], merchantIds: readonly string[]): void {
    this.#reader.add(lookupIds, merchantIds);
    if (this.#reader.waiting > mostWaiting) this.#lookAgain();
    this.#begin();
  }

  close(): void {
    this.#isClosed = true;
    this.#reader.close();
  }

  #hasWork(): boolean {
    if (this.#isClosed || this.#state === 'refused') return false;
    return this.#isToLook || this.#reader.waiting > 0;
  }

  /** Whether a look makes no sense any more: everything was dropped meanwhile. */
  get #hasToEnd(): boolean {
    return this.#isToLook || this.#isClosed;
  }

  #lookAgain(): void {
    this.#isToLook = true;
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
        if (this.#isToLook) await this.#lookAtAll();
        else await this.#reader.readWaiting();
      } catch (error) {
        if (this.#isRefused(error)) break;
      }
      if (!this.#hasWork()) this.#settle();
      // What waits still could not be read, or was changed just now.
      else await rest(retryMilliseconds);
    }
    this.#isRunning = false;
  }

  #settle(): void {
    this.#state = this.#reader.isFull ? 'full' : 'complete';
    if (this.#state === 'full' && this.#told !== 'full') this.#events.onFull(this.#seen);
    this.#told = this.#state;
  }

  /**
   * Redis does not answer, say, or another server is there now: what was not read is tried again. A missing right is not.
   * @returns whether it is that
   */
  #isRefused(error: unknown): boolean {
    if (!(error instanceof Error) || !error.message.startsWith('NOPERM ')) return false;
    this.#state = 'refused';
    if (this.#told !== 'refused') this.#events.onRefused(error);
    this.#told = 'refused';
    return true;
  }

  async #lookAtAll(): Promise<void> {
    if (this.#seen > 0) await rest(lookAgainMilliseconds);
    this.#isToLook = false;
    this.#seen = 0;
    try {
      for await (const ids of this.#reader.keysInStore()) {
        if (this.#hasToEnd) return;
        this.#seen += ids.length;
        // Once they do not fit, those that are left are counted.
        if (!this.#reader.isFull) await this.#readOnWay(ids);
      }
    } catch (error) {
      this.#isToLook = true;
      throw error;
    }
  }

  /** A step that fails does not end the look: what it would have read waits. */
  async #readOnWay(ids: readonly string[]): Promise<void> {
    try {
      await this.#reader.readKeys(ids);
    } catch (error) {
      if (this.#isRefused(error)) throw error;
      await rest(retryMilliseconds);
    }
  }
}
