import { LRUCache } from 'lru-cache';
import type { Eventual } from '../../gateway/eventual.js';
import { lruOptions } from '../../gateway/growing-to.js';
import type { CacheStats, RecordRead } from '../../gateway/record-key-store.js';
import { KeyStoreUnavailable } from '../../gateway/key-store.js';
import { KnownRecords } from './known-records.js';
import { timedOut, FreshnessWait } from './patience.js';

/** Limits of the cache: numbers of entries, and lifetimes. */
export interface CacheLimits {
  readonly maxEntries: number;
  readonly maxAgeMilliseconds: number;
  readonly unknownMaxEntries: number;
  readonly unknownMaxAgeMilliseconds: number;
  readonly maxStaleMilliseconds: number;
}

interface ReadInFlight<Compiled> {
  readonly result: Promise<Compiled | KeyStoreUnavailable | null>;
  /**
   * Whether the value of this read can be cached. False once an invalidation of the record has arrived, or once
   * invalidations no longer arrive: the value may then be outdated.
   */
  mayBeHeld: boolean;
  /**
   * The value of `#round` when the read began. `#round` is incremented before the gateway acknowledges that it has
   * applied a change. A read from before that increment could return an older record, so no new request joins it.
   */
  readonly round: number;
}

/**
 * Caches records of keys and merchants, but no decisions about requests. Existing and unknown ids are cached
 * separately, so that a flood of unknown keys evicts no existing record. Concurrent requests for one id share one read.
 * The value is not cached if an invalidation arrives during the read.
 */
export class RecordCache<Compiled extends object> {
  readonly #known: KnownRecords<Compiled>;
  #unknown: LRUCache<string, { readonly readAt: number }>;
  #unknownEvictions = 0;
  readonly #readsInFlight = new Map<string, ReadInFlight<Compiled>>();
  #round = 0;
  #ahead = new Preload(true);
  readonly #patience: FreshnessWait;
  readonly #limits: CacheLimits;
  readonly #standing: Freshness['standing'];
  readonly #freshness: Freshness;
  readonly #read: (id: string) => Promise<Compiled | KeyStoreUnavailable | null>;
  readonly #now: () => number;

  /**
   * @param read reads from the store; rejects with KeyStoreUnavailable while the store is unavailable
   * @param now milliseconds of a monotonic clock
   */
  constructor(
    limits: CacheLimits,
    freshness: Freshness,
    read: (id: string) => Promise<Compiled | KeyStoreUnavailable | null>,
    now: () => number = () => performance.now(),
  ) {
    [this.#limits, this.#freshness, this.#standing] = [limits, freshness, freshness.standing];
    [this.#read, this.#now] = [read, now];
    this.#patience = new FreshnessWait(() => freshness.standing.fresh, now);
    [this.#known, this.#unknown] = [new KnownRecords(limits.maxEntries), this.#newUnknown()];
  }

  /**
   * Returns a record from the cache if the cache is fresh and contains it, otherwise from the store. If the store fails
   * or is slow, returns the stale record, but only within `staleMilliseconds` after the last proof that all cached
   * records were valid. A record that a stale cache lacks is always read from the store, because it may exist there.
   */
  get(id: string): Eventual<RecordRead<Compiled>> {
    if (this.#standing.fresh) return this.#cachedOrRead(id);
    if (this.#patience.isOver && this.#mayServeStale(id)) return this.#stale(id);
    const caughtUp = this.#freshness.catchUp();
    const soon = this.#mayServeStale(id) ? Promise.race([caughtUp, this.#patience.end()]) : caughtUp;
    return soon.then((ended) => {
      if (this.#standing.fresh) return this.#cachedOrRead(id);
      return ended === timedOut && this.#mayServeStale(id) ? this.#stale(id) : this.#readOrStale(id);
    });
  }

  #cachedOrRead(id: string): Eventual<RecordRead<Compiled>> {
    const held = this.#cachedAndYoung(id);
    return held === undefined ? this.#readOrStale(id) : this.#resultOf(held, 'cache', this.#standing.sinceKnownTrue);
  }

  async #readOrStale(id: string): Promise<RecordRead<Compiled>> {
    const asked = this.#readShared(id);
    try {
      const value = await (this.#mayServeStale(id) ? Promise.race([asked, this.#patience.end()]) : asked);
      if (value !== timedOut) return this.#resultOf(value, 'store', 0);
      asked.catch(() => undefined); // avoids an unhandled rejection if this request gets a stale record
    } catch (error) {
      if (!(error instanceof KeyStoreUnavailable)) throw error;
    }
    return this.#mayServeStale(id) ? this.#stale(id) : this.#resultOf(await asked, 'store', 0);
  }

  /** Returns the cached record as a stale result. @throws KeyStoreUnavailable if the cached record is malformed */
  #stale(id: string): RecordRead<Compiled> {
    return this.#resultOf(this.#known.get(id)?.value ?? null, 'stale', this.#standing.sinceKnownTrue);
  }

  #mayServeStale(id: string): boolean {
    return this.#known.has(id) && this.#standing.sinceKnownTrue <= this.#standing.staleMilliseconds;
  }

  /** Invalidates the records with these ids, because they may have changed. */
  drop(ids: readonly string[]): void {
    for (const id of ids) {
      this.#known.delete(id);
      this.#unknown.delete(id);
      this.#abandon(id);
      this.#ahead.changed(id);
    }
  }

  /** Invalidates all records. */
  dropAll(): void {
    this.#known.dropAll();
    this.#unknown = this.#newUnknown();
    this.becomeStale();
  }

  /**
   * Prevents new requests from joining reads in flight, because such a read could return an outdated record. Must be
   * called before the gateway acknowledges a change. After the acknowledgement, the registry can report the change as
   * in force, so new requests must not get an older record.
   */
  closeLookUps(): void {
    this.#round += 1;
  }

  /**
   * Ends the preload. Reads in flight continue, but their values are not cached, because they may be outdated. Must be
   * called when invalidations no longer arrive.
   */
  becomeStale(): void {
    for (const id of this.#readsInFlight.keys()) this.#abandon(id);
    this.#ahead.end();
  }

  /** Begins a preload, which caches records before a request needs them. Ends the previous preload. */
  readAhead(): Preload {
    this.#ahead.end();
    return (this.#ahead = new Preload(false));
  }

  /**
   * Caches a preloaded record. Does nothing if the cache is stale or already has the record, or if the record may have
   * changed since the preload began.
   * @returns false only if the cache is full: a preload must not evict a record that a request needed
   */
  holdAhead(ahead: Preload, id: string, value: Compiled | KeyStoreUnavailable): boolean {
    if (!ahead.mayHold(id) || !this.#standing.fresh || this.#known.has(id)) return true;
    if (this.#known.size >= this.#limits.maxEntries) return false;
    this.#unknown.delete(id);
    this.#known.set(id, value, Math.floor(this.#now()));
    return true;
  }

  /**
   * Returns the cached record, even if it is stale or expired; undefined if it is not cached. The call does not affect
   * which record the cache evicts next.
   */
  peek(id: string): Compiled | KeyStoreUnavailable | undefined {
    return this.#known.peek(id)?.value;
  }

  /** Returns true if the cache has the record, even stale or expired, or if a fresh cache knows that none exists. */
  remembers(id: string): boolean {
    return this.#known.has(id) || (this.#standing.fresh && this.#cachedAndYoung(id) === null);
  }

  /** Iterates over all cached records with their ids, even stale or expired records. Skips malformed records. */
  *held(): Generator<readonly [id: string, record: Compiled]> {
    for (const [id, value] of this.#known.entries()) if (!(value instanceof KeyStoreUnavailable)) yield [id, value];
  }

  get stats(): Pick<CacheStats, 'known' | 'unknown'> {
    return {
      known: { entries: this.#known.size, evictions: this.#known.evictions },
      unknown: { entries: this.#unknown.size, evictions: this.#unknownEvictions },
    };
  }

  #resultOf(
    value: Compiled | KeyStoreUnavailable | null,
    source: RecordRead<Compiled>['source'],
    ageMilliseconds: number,
  ): RecordRead<Compiled> {
    if (value instanceof KeyStoreUnavailable) throw value;
    return { record: value, source, ageMilliseconds };
  }

  #cachedAndYoung(id: string): Compiled | KeyStoreUnavailable | null | undefined {
    const now = this.#now();
    const known = this.#known.get(id);
    if (known !== undefined && now - known.readAt <= this.#limits.maxAgeMilliseconds) return known.value;
    const unknown = this.#unknown.get(id);
    if (unknown !== undefined && now - unknown.readAt <= this.#limits.unknownMaxAgeMilliseconds) return null;
    return undefined;
  }

  #readShared(id: string): ReadInFlight<Compiled>['result'] {
    // While invalidations cannot arrive, sharing an earlier read could return a value that is older than this request.
    if (!this.#standing.fresh) return this.#read(id);
    const underWay = this.#readsInFlight.get(id);
    if (underWay?.round === this.#round) return underWay.result;
    this.#abandon(id);
    const flight: ReadInFlight<Compiled> = {
      ...{ mayBeHeld: true, round: this.#round },
      result: this.#read(id).then(
        (value) => {
          this.#store(id, flight, value);
          return value;
        },
        (error: unknown) => {
          if (this.#readsInFlight.get(id) === flight) this.#readsInFlight.delete(id);
          throw error;
        },
      ),
    };
    this.#readsInFlight.set(id, flight);
    return flight.result;
  }

  #store(id: string, flight: ReadInFlight<Compiled>, value: Compiled | KeyStoreUnavailable | null): void {
    if (this.#readsInFlight.get(id) === flight) this.#readsInFlight.delete(id);
    if (!flight.mayBeHeld || !this.#standing.fresh) return;
    const readAt = Math.floor(this.#now()); // an integer, because V8 needs 16 more bytes for a fraction
    if (value === null) {
      this.#known.delete(id);
      this.#unknown.set(id, { readAt });
    } else {
      this.#known.set(id, value, readAt);
    }
  }

  /**
   * Detaches a read in flight, because its record may have changed: the value is not cached, and new requests start
   * another read. Requests that already wait for this read began before that change, so they still get the value.
   */
  #abandon(id: string): void {
    const flight = this.#readsInFlight.get(id);
    if (flight !== undefined) flight.mayBeHeld = false;
    this.#readsInFlight.delete(id);
  }

  /** Creates a new map of unknown ids. The old map is not reused, because clearing a full map takes milliseconds. */
  #newUnknown(): LRUCache<string, { readonly readAt: number }> {
    const dispose = (_value: { readonly readAt: number }, _id: string, reason: string): void => {
      if (reason === 'evict') this.#unknownEvictions += 1;
    };
    return new LRUCache({ ...lruOptions(this.#limits.unknownMaxEntries), dispose });
  }
}

/** Whether cached records can be used: they are valid only while all invalidation messages arrive. */
export interface Freshness {
  readonly standing: {
    /** Whether all invalidations arrive. If so, cached records are valid. */
    readonly fresh: boolean;
    /** Milliseconds since all cached records were last known to be valid. */
    readonly sinceKnownTrue: number;
    /** The highest `sinceKnownTrue` at which the gateway serves stale records. */
    readonly staleMilliseconds: number;
  };
  /** Tries to make the cache fresh again. Resolves within a bounded time, even if the cache is still stale. */
  catchUp(): Promise<void>;
}

/**
 * One preload, which caches records before a request needs them. A preload caches no record that may have changed since
 * the preload began.
 */
export class Preload {
  readonly #changed = new Set<string>();
  #isOver: boolean;

  constructor(isOver: boolean) {
    this.#isOver = isOver;
  }

  changed(id: string): void {
    if (!this.#isOver) this.#changed.add(id);
  }

  /** Ends the preload: it caches no further record. */
  end(): void {
    this.#isOver = true;
    this.#changed.clear();
  }

  mayHold(id: string): boolean {
    return !this.#isOver && !this.#changed.has(id);
  }
}
