import { LRUCache } from 'lru-cache';
import { lruOptions } from '../../gateway/growing-to.js';
import { KeyStoreUnavailable } from '../../gateway/key-store.js';

/** A cached record, and the time at which it was read: whole milliseconds of a monotonic clock. */
interface Entry<Compiled> {
  /**
   * The parsed record, or the error of a record that cannot be used. The error is cached too, because otherwise each
   * request would read and report the record again.
   */
  readonly value: Compiled | KeyStoreUnavailable;
  readAt: number;
  /**
   * The value of `#epoch` when the record was last read. `dropAll` increments `#epoch`, so that all earlier entries
   * count as dropped.
   */
  epoch: number;
}

/**
 * Cached records in the order of their use. `dropAll` invalidates the records but keeps their objects. If a record is
 * read again and is unchanged, the cache reuses its old object. Otherwise, reading 100,000 records again after a
 * reconnect to Redis would create much garbage, and collecting it would delay requests.
 */
export class KnownRecords<Compiled extends object> {
  readonly #entries: LRUCache<string, Entry<Compiled>>;
  #epoch = 0;
  #size = 0;
  #evictions = 0;

  /** @param maxEntries the maximum number of records; the least recently used record is evicted first */
  constructor(maxEntries: number) {
    const dispose = ({ epoch }: Entry<Compiled>, _id: string, reason: string): void => {
      if (epoch !== this.#epoch || reason === 'set') return;
      this.#size -= 1;
      if (reason === 'evict') this.#evictions += 1;
    };
    this.#entries = new LRUCache({ ...lruOptions(maxEntries), dispose });
  }

  /** The number of cached records. */
  get size(): number {
    return this.#size;
  }

  /** The number of records that were evicted for lack of space. */
  get evictions(): number {
    return this.#evictions;
  }

  /** Returns a cached record and marks it as the most recently used; undefined if it is not cached. */
  get(id: string): Readonly<Entry<Compiled>> | undefined {
    const entry = this.#entries.get(id);
    return entry?.epoch === this.#epoch ? entry : undefined;
  }

  /** Returns a cached record without marking it as used; undefined if it is not cached. */
  peek(id: string): Readonly<Entry<Compiled>> | undefined {
    const entry = this.#entries.peek(id);
    return entry?.epoch === this.#epoch ? entry : undefined;
  }

  has(id: string): boolean {
    return this.peek(id) !== undefined;
  }

  /**
   * Caches a record as the most recently used.
   * @param readAt when the record was read, in whole milliseconds of a monotonic clock
   */
  set(id: string, value: Compiled | KeyStoreUnavailable, readAt: number): void {
    const held = this.#entries.get(id);
    if (held?.epoch !== this.#epoch) this.#size += 1;
    if (held !== undefined && isUnchanged(held.value, value)) {
      held.readAt = readAt;
      held.epoch = this.#epoch;
    } else {
      this.#entries.set(id, { value, readAt, epoch: this.#epoch });
    }
  }

  delete(id: string): void {
    this.#entries.delete(id);
  }

  /** Invalidates all records without deletion: deleting 100,000 records takes 30 ms and would delay requests. */
  dropAll(): void {
    this.#epoch += 1;
    this.#size = 0;
  }

  /** Iterates over the cached records, each with its id. */
  *entries(): Generator<readonly [id: string, value: Compiled | KeyStoreUnavailable]> {
    for (const [id, entry] of this.#entries.entries()) if (entry.epoch === this.#epoch) yield [id, entry.value];
  }
}

/**
 * Whether two records have the same members with the same values, compared with `Object.is`. Compiled (parsed)
 * allowlists are opaque objects, so two of them always count as different. Two errors count as different too.
 */
function isUnchanged(former: object, current: object): boolean {
  if (former instanceof KeyStoreUnavailable || current instanceof KeyStoreUnavailable) return false;
  const [one, other] = [former, current] as Record<string, unknown>[];
  const names = Object.keys(former);
  return (
    names.length === Object.keys(current).length &&
    names.every((name) => Object.hasOwn(current, name) && Object.is(one?.[name], other?.[name]))
  );
}
