import { LRUCache } from 'lru-cache';
import type { Eventual } from '../../gateway/eventual.js';
import { lruOptions } from '../../gateway/growing-to.js';
import { type CacheStats, KeyStoreUnavailable, type RecordRead } from '../../gateway/ports.js';
import { KnownRecords } from './known-records.js';
import { timedOut, FreshnessWait } from './patience.js';

/** Sizes and lifetimes of the cache. */
export interface CacheLimits {
  readonly maxEntries: number;
  readonly maxAgeMilliseconds: number;
  readonly unknownMaxEntries: number;
  readonly unknownMaxAgeMilliseconds: number;
  readonly maxStaleMilliseconds: number;
}

interface ReadInFlight<Compiled> {
  readonly result: Promise<Compiled | KeyStoreUnavailable | null>;
  /** False once the record may have changed: a value that arrives later may be older than the invalidation. */
  mayBeHeld: boolean;
  /** The round changes when a revision is acknowledged. New requests must not join a read of an earlier round. */
  readonly round: number;
}

/**
 * Caches records, never verdicts. Known and unknown records are cached separately, so that a flood of unknown keys
 * evicts no known record. Requests share a read in flight, unless a revision was acknowledged since it began. A value
 * that was read before a change and arrives after its invalidation is not cached.
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
   * Finds a record: cached and known to be valid, just read, or, while the store is unavailable, stale within the
   * limit. While invalidations cannot arrive, the cache never reports that a record does not exist.
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
      asked.catch(() => undefined); // no caller may be waiting for this result
    } catch (error) {
      if (!(error instanceof KeyStoreUnavailable)) throw error;
    }
    return this.#mayServeStale(id) ? this.#stale(id) : this.#resultOf(await asked, 'store', 0);
  }

  /** @throws KeyStoreUnavailable for an unusable record */
  #stale(id: string): RecordRead<Compiled> {
    return this.#resultOf(this.#known.get(id)?.value ?? null, 'stale', this.#standing.sinceKnownTrue);
  }

  #mayServeStale(id: string): boolean {
    return this.#known.has(id) && this.#standing.sinceKnownTrue <= this.#standing.staleMilliseconds;
  }

  /** Invalidates records that may have changed. */
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
   * Stops new requests from joining reads in flight. Call it before a revision is acknowledged, because the registry
   * may then report a change as in force that these reads do not contain.
   */
  closeLookUps(): void {
    this.#round += 1;
  }

  /** Makes all cached records stale: invalidations no longer arrive, so values of reads in flight cannot be cached. */
  becomeStale(): void {
    for (const id of this.#readsInFlight.keys()) this.#abandon(id);
    this.#ahead.end();
  }

  /** Begins a preload, which reads records before a request needs them. Only the newest preload counts. */
  readAhead(): Preload {
    this.#ahead.end();
    return (this.#ahead = new Preload(false));
  }

  /**
   * Caches a preloaded record, unless it is cached already or may have changed meanwhile.
   * @returns false when the cache is full: a preload evicts no record that a request needed
   */
  holdAhead(ahead: Preload, id: string, value: Compiled | KeyStoreUnavailable): boolean {
    if (!ahead.mayHold(id) || !this.#standing.fresh || this.#known.has(id)) return true;
    if (this.#known.size >= this.#limits.maxEntries) return false;
    this.#unknown.delete(id);
    this.#known.set(id, value, Math.floor(this.#now()));
    return true;
  }

  /** A cached record, whether it may be served or not. The call does not count as a use. */
  peek(id: string): Compiled | KeyStoreUnavailable | undefined {
    return this.#known.peek(id)?.value;
  }

  /** Whether the cache knows that the record exists, at any age, or, while fresh, that it does not exist. */
  remembers(id: string): boolean {
    return this.#known.has(id) || (this.#standing.fresh && this.#cachedAndYoung(id) === null);
  }

  /** The cached records by id, whether they may be served or not. */
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
    // No invalidation would reveal that a shared read is outdated.
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
    const readAt = Math.floor(this.#now()); // a fraction takes 16 bytes more than an integer
    if (value === null) {
      this.#known.delete(id);
      this.#unknown.set(id, { readAt });
    } else {
      this.#known.set(id, value, readAt);
    }
  }

  /** New requests start another read. Requests that are waiting began before the change. */
  #abandon(id: string): void {
    const flight = this.#readsInFlight.get(id);
    if (flight !== undefined) flight.mayBeHeld = false;
    this.#readsInFlight.delete(id);
  }

  /** Clearing a full map takes milliseconds, so a new one replaces it. */
  #newUnknown(): LRUCache<string, { readonly readAt: number }> {
    const dispose = (_value: { readonly readAt: number }, _id: string, reason: string): void => {
      if (reason === 'evict') this.#unknownEvictions += 1;
    };
    return new LRUCache({ ...lruOptions(this.#limits.unknownMaxEntries), dispose });
  }
}

/** State of the invalidations, on which the validity of cached records depends. */
export interface Freshness {
  readonly standing: {
    /** Whether every change arrives, so that cached records are valid. */
    readonly fresh: boolean;
    /** Milliseconds since all cached records were known to be valid. */
    readonly sinceKnownTrue: number;
    /** How long after that stale records may be served. */
    readonly staleMilliseconds: number;
  };
  /** Tries to become fresh again, within a bounded time. Resolves whether it succeeded or not. */
  catchUp(): Promise<void>;
}

/** A preload. Records that may have changed since it began are not cached. */
export class Preload {
  readonly #changed = new Set<string>();
  #isOver: boolean;

  constructor(isOver: boolean) {
    this.#isOver = isOver;
  }

  changed(id: string): void {
    if (!this.#isOver) this.#changed.add(id);
  }

  /** Ends the preload: no further record of it is cached. */
  end(): void {
    this.#isOver = true;
    this.#changed.clear();
  }

  mayHold(id: string): boolean {
    return !this.#isOver && !this.#changed.has(id);
  }
}
