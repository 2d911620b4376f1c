import { LRUCache } from 'lru-cache';
import { checksumIn } from '../../gateway/api-key.js';
import { lruOptions } from '../../gateway/growing-to.js';
import type { KeyStore } from '../../gateway/key-store.js';
import { TokenBucket } from '../../gateway/token-bucket.js';
import type { DenialCode } from '../../policy/decision-table.js';
import { GatewayError } from '../request/errors.js';
import type { KeySender, KeyThrottle } from './step-sources.js';

/** Limits of the throttle for sources (IPv4 addresses or IPv6 /64s) that send invalid keys. */
export interface ThrottleLimits {
  /** A source is throttled after this many requests without an acceptable key within `windowSeconds`. */
  readonly badKeys: number;
  /**
   * Number of requests without an acceptable key within `windowSeconds`, of all unthrottled sources together. Once this
   * number is reached, the look-up limits apply to unknown keys from every source.
   */
  readonly totalBadKeys: number;
  readonly windowSeconds: number;
  readonly pauseSeconds: number;
  /** Look-ups of unknown keys per second that are reserved for each source to which the look-up limits apply. */
  readonly lookupsPerSecond: number;
  /**
   * Further look-ups of unknown keys per second, shared by all sources to which the look-up limits apply. This budget
   * exists twice: once for generated keys with a valid checksum, once for imported keys without a checksum.
   */
  readonly totalLookupsPerSecond: number;
  readonly maxSources: number;
}

interface Source {
  readonly bad: BadRequests;
  lookups: TokenBucket | null;
}

/**
 * Denials that count as a request without an acceptable key. Denials such as a missing permission are not listed,
 * because a caller with a valid key is not guessing keys.
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

/**
 * Denials that even a throttled source receives unchanged, not as a 429, because they do not help an attacker to find a
 * key. The first three are decided before the key look-up. `permission_denied` shows that the key is valid, but any
 * accepted request with the key would show that too.
 */
export const revealingNoKey: ReadonlySet<DenialCode> = new Set<DenialCode>([
  'https_required',
  'tor_blocked',
  'key_required',
  'permission_denied',
]);

/**
 * Throttles sources (IPv4 addresses or IPv6 /64s) that send requests without an acceptable key. Counts by source, not
 * by key, so no client can lock a merchant out. A throttled source gets a 429 in place of every response that would
 * reveal whether a key exists.
 * While a source, or all sources together, are throttled, the throttle also limits look-ups in the key store. The
 * gateway cannot distinguish a made-up key from a valid key that it has not seen yet, so these rules apply:
 * - A key that is known to exist, or whose look-up result is cached, is always looked up.
 * - A generated key with a wrong checksum is never looked up.
 * - Of all other keys, the first one on each connection is looked up, which costs an attacker a handshake.
 * - All further keys are subject to look-up budgets.
 */
export class BadKeyThrottle implements KeyThrottle {
  readonly #limits: ThrottleLimits;
  readonly #now: () => number;
  readonly #sourceLimits: PauseLimits;
  readonly #sources: LRUCache<string, Source>;
  readonly #total: BadRequests;
  /**
   * Look-up budgets by checksum result. The separate budgets keep made-up keys without a checksum from using up the
   * budget of keys with a valid checksum.
   */
  readonly #totalLookups: { readonly right: TokenBucket; readonly none: TokenBucket };
  /** When the last of all pauses ends, on the clock `now`. During a pause, one source or all sources are throttled. */
  #quietFrom = -Infinity;
  /** Number of keys rejected without a look-up: for a wrong checksum, or because the look-up budget was used up. */
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
   * Whether unthrottled sources together have reached `totalBadKeys`. If so, look-ups of unknown keys are limited for
   * every source.
   */
  get isTotalReached(): boolean {
    return this.#total.pauseEnd(this.#now()) !== null;
  }

  /**
   * True if no source is throttled and `isTotalReached` is false. In that case, a request with a key needs no throttle
   * check.
   */
  get isQuiet(): boolean {
    return this.#now() >= this.#quietFrom;
  }

  /**
   * Whether look-ups are limited for a source, because the source, or all sources together, sent too many requests
   * without an acceptable key.
   * @param source null if the source is unknown
   */
  limits(source: string | null): boolean {
    return this.#pauseOf(source) !== null || this.isTotalReached;
  }

  /**
   * Returns the key store for one request. While the source, or all sources together, are throttled, the returned store
   * limits look-ups of unknown keys.
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
   * Counts a denied request if the denial means that the request had no acceptable key.
   * @param source null if the source is unknown
   * @throws GatewayError `throttled` if the source is throttled and the denial would reveal whether the key exists
   */
  denied(source: string | null, denial: DenialCode): void {
    const pauseEnd = this.#pauseOf(source);
    if (withoutAcceptableKey.has(denial)) this.count(source);
    if (pauseEnd !== null && !revealingNoKey.has(denial)) throw this.#refusal(pauseEnd, denial);
  }

  /**
   * Counts a request without an acceptable key.
   * @param source null if the source is unknown; the request then counts only towards the total of all sources
   */
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
    if (connection?.usedFirstLookup === false) {
      connection.usedFirstLookup = true;
      return;
    }
    if (this.#totalLookups[checksum].take()) return;
    const { lookupsPerSecond } = this.#limits;
    const of = source === null ? null : this.#sourceOf(source);
    if (of !== null) {
      of.lookups ??= new TokenBucket(lookupsPerSecond, lookupsPerSecond, this.#now);
      if (of.lookups.take()) return;
    }
    this.refusedLookups.budget += 1;
    this.count(source);
    throw this.#refusal(pauseEnd, 'the key is new to this process, and the lookup quota for new keys is used up');
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
    const message = `this source, or all sources together, sent too many requests without an acceptable key; reason for this refusal: ${detail}`;
    return new GatewayError('throttled', message, { retryAfterSeconds });
  }
}

/**
 * A pause starts once `most` bad requests (without an acceptable key) have arrived within one time window. During its
 * pause, a source is throttled.
 */
interface PauseLimits {
  readonly most: number;
  readonly windowMilliseconds: number;
  readonly pauseMilliseconds: number;
}

/**
 * Counts bad requests (without an acceptable key) of one source, or of all sources together. Reaching the threshold
 * within a window starts a pause. Reaching the threshold again during the pause extends the pause.
 */
class BadRequests {
  readonly #limits: PauseLimits;
  #count = 0;
  #windowEndsAt = -Infinity;
  #pauseEndsAt: number | null = null;

  constructor(limits: PauseLimits) {
    this.#limits = limits;
  }

  /** Number of bad requests (without an acceptable key) in the current window. */
  get count(): number {
    return this.#count;
  }

  /**
   * Counts a bad request.
   * @returns whether this request starts a pause; false if it only extends one
   */
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

  /**
   * Subtracts requests from the count of the window. Called on the total of all sources when one source becomes
   * throttled, because only unthrottled sources count towards the total.
   */
  forget(count: number): void {
    this.#count = Math.max(0, this.#count - count);
  }

  /** Returns when the current pause ends; null without a pause. If a pause has expired, resets the counters. */
  pauseEnd(now: number): number | null {
    if (this.#pauseEndsAt === null || this.#pauseEndsAt > now) return this.#pauseEndsAt;
    this.#pauseEndsAt = null;
    this.#count = 0;
    this.#windowEndsAt = -Infinity;
    return null;
  }
}
