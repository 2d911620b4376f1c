import { LRUCache } from 'lru-cache';

const mostReads = 10_000;
const hourMilliseconds = 3_600_000;

/** Finds the first read in each hour by one administrator of one merchant's records of a kind. */
export class FirstReads {
  readonly #hours = new LRUCache<string, number>({ max: mostReads });

  /**
   * Stores the event of a read, if it is the first one. The read does not wait for it, because reads must work while the
   * database accepts no writes. If it fails, the next read stores it.
   * @param what the kind of records
   * @returns resolves when the event has been stored or has failed; null for a later read
   */
  note(
    { administratorId, actor }: { readonly administratorId: string | null; readonly actor: string },
    merchantId: string,
    what: string,
    now: number,
    store: () => Promise<void>,
  ): Promise<void> | null {
    const hour = Math.floor(now / hourMilliseconds);
    const name = `${administratorId ?? actor}\n${merchantId}\n${what}`;
    if (this.#hours.get(name) === hour) return null;
    this.#hours.set(name, hour);
    return store().catch(() => void this.#hours.delete(name));
  }
}
