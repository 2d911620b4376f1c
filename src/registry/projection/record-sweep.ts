import type { RecordsStore, StoreEntry } from '../../gateway/store-ports.js';
import type { RegistryDatabase } from '../registry-database.js';
import { recordPrefixes, unknownNames } from './current-records.js';
import { pageLength, storedPages } from './pages.js';

/** Dependencies of RecordSweep. */
export interface SweepOptions {
  readonly database: RegistryDatabase;
  readonly store: Pick<RecordsStore, 'names'>;
  readonly monotonic: () => number;
}

/**
 * Normal rate of a sweep (scan of all records). At 500 records per page, a sweep of a million records takes 34 minutes:
 * 17 for the records of the database, and 17 for the names in the store.
 */
const pagesPerSecond = 2;
/**
 * Higher rate of a sweep, used after notifications of Redis were lost. At this rate, it takes only minutes until the
 * sweep finds the changes that the lost notifications were about.
 */
const hastyPagesPerSecond = 20;
/**
 * Pause between two sweeps (scans of all records). Without this pause, sweeps of a small store would scan all names in
 * Redis continuously.
 */
const betweenSweepsMilliseconds = 60_000;

/**
 * Reads all records of the database, then all names in the store, repeatedly and at a limited rate. The comparison of
 * the database with the store finds changes in the store for which no notification arrived.
 */
export class RecordSweep {
  readonly #options: SweepOptions;
  #records: AsyncGenerator<StoreEntry[]> | null = null;
  #names: NamesAhead | null = null;
  #began = -Infinity;
  #allowance = 0;
  #allowedAt = -Infinity;
  /**
   * Number of sweeps (scans of all records) that will run at the higher rate. If notifications are lost during a sweep,
   * the number is 2: the rest of that sweep, and a complete sweep.
   */
  #hasty = 1;

  constructor(options: SweepOptions) {
    this.#options = options;
  }

  /**
   * Whether a sweep (scan of all records) at the higher rate is due or running. It is due at the start, and after
   * notifications of Redis were lost.
   */
  get isHasty(): boolean {
    return this.#hasty > 0;
  }

  /** Uses the higher rate until every record in the store was compared with the database again. */
  hasten(): void {
    this.#hasty = this.#records === null ? 1 : 2;
  }

  /**
   * Returns the next page of records to compare, with their current values in the database. Null if no page is due yet,
   * or while the page is being read; `done` at the end of a sweep (scan of all records).
   */
  async next(): Promise<readonly StoreEntry[] | 'done' | null> {
    const { database, store, monotonic } = this.#options;
    if (!this.#isDue()) return null;
    if (this.#records === null) this.#began = monotonic();
    this.#records ??= storedPages(database);
    try {
      if (this.#names === null) {
        const page = await this.#records.next();
        if (page.done !== true) return page.value;
        this.#names = new NamesAhead(store);
      }
      const names = this.#names.take();
      if (names === null) return null;
      if (names.length > 0) return (await unknownNames(database, names)).map((name) => ({ name, value: null }));
    } catch (error) {
      // The next call starts a new sweep at once.
      [this.#records, this.#names, this.#began] = [null, null, -Infinity];
      throw error;
    }
    [this.#records, this.#names] = [null, null];
    this.#hasty = Math.max(0, this.#hasty - 1);
    return 'done';
  }

  #isDue(): boolean {
    const now = this.#options.monotonic();
    const isHasty = this.#hasty > 0;
    if (this.#records === null && !isHasty && now - this.#began < betweenSweepsMilliseconds) return false;
    const rate = isHasty ? hastyPagesPerSecond : pagesPerSecond;
    const since = Math.max(0, now - this.#allowedAt) / 1_000;
    this.#allowance = Math.min(rate, this.#allowance + since * rate);
    this.#allowedAt = now;
    if (this.#allowance < 1) return false;
    this.#allowance -= 1;
    return true;
  }
}

/**
 * Reads the names of the store's records in advance. To find one page of names, Redis might have to scan many other
 * keys, and the writing of changes must not wait for this scan.
 */
class NamesAhead {
  readonly #iterator: AsyncGenerator<string>;
  #names: string[] = [];
  #hasEnded = false;
  #failure: Error | null = null;
  #reading: Promise<void> | null = null;

  constructor(store: Pick<RecordsStore, 'names'>) {
    this.#iterator = namesOf(store);
    this.#read();
  }

  /** Returns a page of record names: empty at the end, null while the page is being read. @throws the store's error */
  take(): readonly string[] | null {
    if (this.#failure !== null) throw this.#failure;
    if (this.#names.length < pageLength && !this.#hasEnded) return null;
    const page = this.#names.splice(0, pageLength);
    this.#read();
    return page;
  }

  #read(): void {
    this.#reading ??= this.#fill()
      .catch((error: unknown) => {
        this.#failure = error instanceof Error ? error : new Error(String(error));
      })
      .finally(() => {
        this.#reading = null;
      });
  }

  async #fill(): Promise<void> {
    while (!this.#hasEnded && this.#names.length < pageLength * 2) {
      const name = await this.#iterator.next();
      if (name.done === true) this.#hasEnded = true;
      else this.#names.push(name.value);
    }
  }
}

async function* namesOf(store: Pick<RecordsStore, 'names'>): AsyncGenerator<string> {
  for (const prefix of recordPrefixes) yield* store.names(prefix);
}
