import type { RecordsStore, StoreEntry } from '../../gateway/store-ports.js';
import type { RegistryDatabase } from '../registry-database.js';
import { recordPrefixes, unknownNames } from './current-records.js';
import { pageLength, storedPages } from './pages.js';

/** Options of the sweep. */
export interface SweepOptions {
  readonly database: RegistryDatabase;
  readonly store: Pick<RecordsStore, 'names'>;
  readonly monotonic: () => number;
}

/** At 500 names a page, a million records and then their names in the store take 34 minutes. */
const pagesPerSecond = 2;
/** The same after lost notifications: an unnoticed change is found within minutes. */
const hastyPagesPerSecond = 20;
/** A small store does not need continuous sweeps through all names in Redis. */
const betweenSweepsMilliseconds = 60_000;

/**
 * Walks all records of the database, then all names of the store, repeatedly and at a bounded rate. Finds changes
 * without a notification.
 */
export class RecordSweep {
  readonly #options: SweepOptions;
  #records: AsyncGenerator<StoreEntry[]> | null = null;
  #names: NamesAhead | null = null;
  #began = -Infinity;
  #allowance = 0;
  #allowedAt = -Infinity;
  /** Remaining sweeps at the higher rate: the running one, and a whole one. */
  #hasty = 1;

  constructor(options: SweepOptions) {
    this.#options = options;
  }

  /** Whether notifications were lost since the last whole sweep began. */
  get isHasty(): boolean {
    return this.#hasty > 0;
  }

  /** Uses the higher rate until every record was compared once more. */
  hasten(): void {
    this.#hasty = this.#records === null ? 1 : 2;
  }

  /** Starts the sweep again from the beginning. */
  restart(): void {
    this.#records = null;
    this.#names = null;
    this.#began = -Infinity;
  }

  /** The next page, as the database has it now; null if it is not due yet, `done` at the end of a sweep. */
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
      this.restart();
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

/** Prefetches names: Redis may scan many other names for one page, and no change should wait for that. */
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

  /** A page of names; empty at the end, null while it is still being read. @throws the store's error */
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
