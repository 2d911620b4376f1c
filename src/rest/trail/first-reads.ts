import { LRUCache } from 'lru-cache';

const mostReads = 10_000;
const hourMilliseconds = 3_600_000;

/** Stores an event when an administrator reads a merchant's records of one kind for the first time in an hour. */
export class FirstReads {
  readonly #hours = new LRUCache<string, number>({ max: mostReads });

  /**
   * Stores the event if the administrator has not yet read this merchant's records of this kind in the current hour.
   * The request must not wait until the event is stored, because reads must work while the database accepts no writes.
   * If storing fails, the next read tries again.
   * @param what the kind of records
   * @param now time of the read, in milliseconds since 1970
   * @returns a promise that resolves when storing has succeeded or failed; null for a later read in the hour
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
