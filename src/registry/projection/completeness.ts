import type { Logger, RecordsStore, StoreEntry } from '../ports.js';
import type { RegistryDatabase } from '../registry-database.js';
import type { EvictionGuard } from './eviction-guard.js';
import { readHistory } from './history.js';
import type { Lease } from './lease.js';
import { storedPages } from './pages.js';
import type { RecordsWriter } from './records-writer.js';

/** What a search for missing records works with. */
export interface CompletenessOptions {
  readonly database: RegistryDatabase;
  readonly store: Pick<RecordsStore, 'read'>;
  readonly writer: RecordsWriter;
  readonly lease: Pick<Lease, 'keep'>;
  readonly eviction: EvictionGuard;
  readonly logger?: Logger | undefined;
}

interface Search {
  readonly epoch: number;
  readonly evictedKeys: number | null;
  readonly pages: AsyncGenerator<StoreEntry[]>;
  missing: number;
}

/**
 * Knows whether a record may be missing in the store: everything was written or looked for in this epoch, and Redis has evicted nothing
 * since. Where that does not hold, every record is looked for, a page at a time, and written again where it is not there.
 */
export class Completeness {
  readonly #options: CompletenessOptions;
  #compared: Pick<Search, 'epoch' | 'evictedKeys'> | null = null;
  #search: Search | null = null;

  constructor(options: CompletenessOptions) {
    this.#options = options;
  }

  /** Whether it is known that no record is missing in a store of this epoch. */
  holds(epoch: number | null): boolean {
    return epoch !== null && this.#compared?.epoch === epoch && this.#compared.evictedKeys === this.#evictedKeys;
  }

  /** Takes in that everything was written. @param evictedKeys as they were before that */
  written(epoch: number, evictedKeys: number | null): void {
    this.#compared = { epoch, evictedKeys };
    this.#search = null;
  }

  /** A record was missing, so others may be. */
  doubt(): void {
    this.#compared = null;
  }

  /**
   * Looks for the records of one page, where that is due.
   * @returns false where this process projects no more
   */
  async goOn(epoch: number): Promise<boolean> {
    if (this.holds(epoch)) return true;
    const { database, logger } = this.#options;
    if (this.#search?.epoch !== epoch || this.#search.evictedKeys !== this.#evictedKeys)
      this.#search = { epoch, evictedKeys: this.#evictedKeys, pages: storedPages(database), missing: 0 };
    const search = this.#search;
    // Before the page is read: what is changed meanwhile is written with its change.
    const { revision } = await readHistory(database);
    const page = await search.pages.next();
    if (page.done !== true) return this.#repair(page.value, revision, search);
    this.written(epoch, search.evictedKeys);
    if (search.missing > 0) logger?.warn({ records: search.missing }, 'every missing record is in Redis again');
    return true;
  }

  get #evictedKeys(): number | null {
    return this.#options.eviction.evictedKeys;
  }

  async #repair(page: readonly StoreEntry[], revision: number, search: Search): Promise<boolean> {
    const { store, writer, lease } = this.#options;
    const held = new Set((await store.read(page.map(({ name }) => name))).filter(isThere).map(({ name }) => name));
    const missing = page.filter(({ name }) => !held.has(name));
    if (missing.length === 0) return true;
    search.missing += missing.length;
    await writer.rewrite(missing, revision);
    return lease.keep({ names: missing.map(({ name }) => name), revision });
  }
}

function isThere({ value }: StoreEntry): boolean {
  return value !== null;
}
