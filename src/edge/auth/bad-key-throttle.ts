import { LRUCache } from 'lru-cache';
import { checksumIn } from '../../gateway/api-key.js';
import { lruOptions } from '../../gateway/growing-to.js';
import type { KeyStore } from '../../gateway/ports.js';
import { TokenBucket } from '../../gateway/token-bucket.js';
import type { DenialCode } from '../../policy/decision-table.js';
import { GatewayError } from '../request/errors.js';

/** Limits of the throttle. */
export interface ThrottleLimits {
  /** Requests without an acceptable key within `windowSeconds` after which a source is throttled. */
  readonly badKeys: number;
  /**
   * Like `badKeys`, but counted over all unthrottled sources together. Above this number, the limits of key look-ups
   * apply to unknown keys from every source.
   */
  readonly totalBadKeys: number;
  readonly windowSeconds: number;
  readonly pauseSeconds: number;
  /** Look-ups per second of keys not known to exist, reserved for each throttled source. */
  readonly lookupsPerSecond: number;
  /**
   * Further look-ups per second, shared by all throttled sources. Generated keys and imported keys of other forms each
   * have a budget of this size.
   */
  readonly totalLookupsPerSecond: number;
  readonly maxSources: number;
}

/** The sender of a key, as the look-up limits need it. */
export interface KeySender {
  /** Source of the client address, as `sourceOf` returns it. */
  readonly source: string;
  readonly key: string;
  /** The client's own connection; null if a proxy's connection carries requests of many clients. */
  readonly connection: object | null;
}

interface Source {
  readonly bad: BadRequests;
  lookups: TokenBucket | null;
}

/**
 * Denials of requests without an acceptable key. A caller with a valid key but without permission is not guessing keys.
 */
const withoutAcceptableKey: ReadonlySet<DenialCode> = new Set<DenialCode>([
  'https_required',
  'tor_blocked',
  'key_required',
  'key_format',
  'test_key_in_live',
  'live_key_in_test',
  'key_unknown',
  'key_inactive',
]);

/** Denials that do not reveal whether a key exists: decided before the look-up, or only for a valid key. */
const revealingNoKey: ReadonlySet<DenialCode> = new Set<DenialCode>([
  'https_required',
  'tor_blocked',
  'key_required',
  'permission_denied',
]);

/**
 * Throttles sources that send requests without an acceptable key. Counts by source, not by key, so no client can lock a
 * merchant out. Every other request with a key from a throttled source gets the same 429, so the source cannot learn
 * which keys exist.
 * Protects the key store. Keys known to exist are always looked up. Of the other keys, the first of each connection is
 * looked up, which costs an attacker a handshake. The rest share a look-up budget. Made-up keys and valid keys that
 * this process has not seen look the same.
 */
export class BadKeyThrottle {
  readonly #limits: ThrottleLimits;
  readonly #now: () => number;
  readonly #sourceLimits: PauseLimits;
  readonly #sources: LRUCache<string, Source>;
  readonly #total: BadRequests;
  /**
   * By the key's checksum result, so that made-up keys of other forms do not use up the budget of keys with a right
   * checksum.
   */
  readonly #totalLookups: { readonly right: TokenBucket; readonly none: TokenBucket };
  readonly #usedFirstLookup = new WeakSet();
  /** When the last pause ends, on the `now` clock. */
  #quietFrom = -Infinity;
  /** Number of keys refused without a look-up, by reason. */
  readonly refusedLookups = { checksum: 0, budget: 0 };

  /** @param now monotonic clock in milliseconds */
  constructor(limits: ThrottleLimits, now: () => number = () => performance.now()) {
    const { windowSeconds, pauseSeconds, totalLookupsPerSecond } = limits;
    const times = { windowMilliseconds: windowSeconds * 1000, pauseMilliseconds: pauseSeconds * 1000 };
    this.#limits = limits;
    this.#now = now;
    this.#sourceLimits = { most: limits.badKeys, ...times };
    this.#sources = new LRUCache(lruOptions(limits.maxSources));
    this.#total = new BadRequests({ most: limits.totalBadKeys, ...times });
    const ofAll = (): TokenBucket => new TokenBucket(totalLookupsPerSecond, totalLookupsPerSecond, now);
    this.#totalLookups = { right: ofAll(), none: ofAll() };
  }

  /** Number of sources that are throttled now. */
  get throttled(): number {
    const now = this.#now();
    let count = 0;
    for (const { bad } of this.#sources.values()) if (bad.pauseEnd(now) !== null) count += 1;
    return count;
  }

  /**
   * Whether unthrottled sources together reached `totalBadKeys`: then every source without an acceptable key counts as
   * throttled.
   */
  get isTotalReached(): boolean {
    return this.#total.pauseEnd(this.#now()) !== null;
  }

  /** Whether no pause is active: a request with a key then needs no throttle check. */
  get isQuiet(): boolean {
    return this.#now() >= this.#quietFrom;
  }

  /** Whether requests without an acceptable key from a source exceed a limit. @param source null: unknown */
  limits(source: string | null): boolean {
    return this.#pauseOf(source) !== null || this.isTotalReached;
  }

  /**
   * Wraps the key store for a request: limits look-ups of unknown keys while the source or all sources exceed their
   * limits.
   */
  sparing(keyStore: Pick<KeyStore, 'find' | 'knows'>, bearer: KeySender): Pick<KeyStore, 'find'> {
    const pauseEnd = this.#pauseOf(bearer.source) ?? this.#total.pauseEnd(this.#now());
    if (pauseEnd === null) return keyStore;
    return {
      find: (lookupId) => {
        if (keyStore.knows?.(lookupId) !== true) this.#requireLookUp(bearer, pauseEnd);
        return keyStore.find(lookupId);
      },
    };
  }

  /**
   * Counts a denied request.
   * @throws GatewayError throttled, which replaces the denial, for a throttled source
   */
  denied(source: string, denial: DenialCode): void {
    const known = this.isQuiet ? undefined : this.#sources.get(source);
    const pauseEnd = known?.bad.pauseEnd(this.#now()) ?? null;
    if (withoutAcceptableKey.has(denial)) this.#count((known ?? this.#sourceOf(source)).bad);
    if (pauseEnd !== null && !revealingNoKey.has(denial)) throw this.#refusal(pauseEnd, denial);
  }

  /** Counts a request without an acceptable key. @param source null: unknown; then only the total counts it */
  count(source: string | null): void {
    this.#count(source === null ? null : this.#sourceOf(source).bad);
  }

  #count(bad: BadRequests | null): void {
    const now = this.#now();
    const isThrottled = bad !== null && bad.pauseEnd(now) !== null;
    const countBefore = bad?.count ?? 0;
    if (bad?.add(now) === true) this.#total.forget(countBefore);
    else if (!isThrottled) this.#total.add(now);
    this.#quietFrom = Math.max(this.#quietFrom, bad?.pauseEnd(now) ?? now, this.#total.pauseEnd(now) ?? now);
  }

  #requireLookUp({ source, key, connection }: KeySender, pauseEnd: number): void {
    const checksum = checksumIn(key);
    if (checksum === 'wrong') {
      this.refusedLookups.checksum += 1;
      this.count(source);
      throw this.#refusal(pauseEnd, 'the key has a wrong checksum');
    }
    if (connection !== null && !this.#usedFirstLookup.has(connection)) {
      this.#usedFirstLookup.add(connection);
      return;
    }
    if (this.#totalLookups[checksum].take()) return;
    const { lookupsPerSecond } = this.#limits;
    const of = this.#sourceOf(source);
    of.lookups ??= new TokenBucket(lookupsPerSecond, lookupsPerSecond, this.#now);
    if (of.lookups.take()) return;
    this.refusedLookups.budget += 1;
    this.count(source);
    throw this.#refusal(pauseEnd, 'the look-up quota for unknown keys is used up');
  }

  #sourceOf(source: string): Source {
    const known = this.#sources.get(source);
    if (known !== undefined) return known;
    const added: Source = { bad: new BadRequests(this.#sourceLimits), lookups: null };
    this.#sources.set(source, added);
    return added;
  }

  #pauseOf(source: string | null): number | null {
    if (source === null || this.isQuiet) return null;
    return this.#sources.get(source)?.bad.pauseEnd(this.#now()) ?? null;
  }

  #refusal(pauseEnd: number, detail: string): GatewayError {
    const retryAfterSeconds = Math.max(1, Math.ceil((pauseEnd - this.#now()) / 1000));
    const message = `too many requests without an acceptable key from this source, or from all sources: ${detail}`;
    return new GatewayError('throttled', message, { retryAfterSeconds });
  }
}

/** Thresholds and durations of a pause. */
interface PauseLimits {
  readonly most: number;
  readonly windowMilliseconds: number;
  readonly pauseMilliseconds: number;
}

/**
 * Counts bad requests. Reaching the threshold in a window starts a pause; reaching it again during the pause extends
 * the pause.
 */
class BadRequests {
  readonly #limits: PauseLimits;
  #count = 0;
  #windowEndsAt = -Infinity;
  #pauseEndsAt: number | null = null;

  constructor(limits: PauseLimits) {
    this.#limits = limits;
  }

  /** Bad requests in the current window. */
  get count(): number {
    return this.#count;
  }

  /** Counts a bad request. @returns whether it starts a pause */
  add(now: number): boolean {
    const { most, windowMilliseconds, pauseMilliseconds } = this.#limits;
    const wasPaused = this.pauseEnd(now) !== null;
    if (now >= this.#windowEndsAt) {
      this.#count = 0;
      this.#windowEndsAt = now + windowMilliseconds;
    }
    this.#count += 1;
    if (this.#count < most) return false;
    this.#pauseEndsAt = now + pauseMilliseconds;
    this.#count = 0;
    this.#windowEndsAt = this.#pauseEndsAt;
    return !wasPaused;
  }

  /** Subtracts requests from the current window. */
  forget(count: number): void {
    this.#count = Math.max(0, this.#count - count);
  }

  /** End of the pause; null without a pause. An expired pause resets the counters. */
  pauseEnd(now: number): number | null {
    if (this.#pauseEndsAt === null || this.#pauseEndsAt > now) return this.#pauseEndsAt;
    this.#pauseEndsAt = null;
    this.#count = 0;
    this.#windowEndsAt = -Infinity;
    return null;
  }
}
