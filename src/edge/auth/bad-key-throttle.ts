import { LRUCache } from 'lru-cache';
import { checksumIn } from '../../gateway/api-key.js';
import { growingTo } from '../../gateway/growing-to.js';
import type { KeyStore } from '../../gateway/ports.js';
import { TokenBucket } from '../../gateway/token-bucket.js';
import type { DenialCode } from '../../policy/decision-table.js';
import { GatewayError } from '../request/errors.js';

/** When a source is throttled, and how much is remembered. */
export interface ThrottleLimits {
  /** Requests without an acceptable key within `windowSeconds` from which on a source is throttled. */
  readonly badKeys: number;
  /** The same of all sources together that are not throttled; from then on none of their unknown keys is looked up freely. */
  readonly totalBadKeys: number;
  readonly windowSeconds: number;
  readonly pauseSeconds: number;
  /** Keys not known to exist that are looked up for one throttled source, whatever others use. */
  readonly lookupsPerSecond: number;
  /** Further ones for all throttled sources together: so many of generated keys, and so many of imported ones of other forms. */
  readonly totalLookupsPerSecond: number;
  readonly maxSources: number;
}

/** Who brings a key, as far as that decides about a look-up. */
export interface KeyBearer {
  /** The client address or what stands for it. */
  readonly source: string;
  readonly key: string;
  /** Of the client itself; null where a proxy's connection carries requests of many clients. */
  readonly connection: object | null;
}

interface Source {
  readonly bad: BadRequests;
  lookups: TokenBucket | null;
}

/** What says that no acceptable key came. A caller with a valid key who may not do what it asks for is no guesser. */
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

/** What is told without a look at a key, and what is told to a valid one alone: neither says whether a key exists. */
const toldToEverybody: ReadonlySet<DenialCode> = new Set<DenialCode>([
  'https_required',
  'tor_blocked',
  'key_required',
  'permission_denied',
]);

/**
 * Slows down sources that send requests without an acceptable key, and never the owner of a key: it counts by source and not by key,
 * so that nobody can lock a merchant out. All else with a key in it that such a source sends is answered alike, so that it does not
 * learn which of its keys exist.
 *
 * It spares the store. A key that is known to exist is looked up as always. Of the others: the first of each connection, which costs
 * an attacker a handshake; then a share of what is left. Made-up keys and valid ones that this process has not seen look the same.
 */
export class BadKeyThrottle {
  readonly #limits: ThrottleLimits;
  readonly #now: () => number;
  readonly #ofSource: PauseLimits;
  readonly #sources: LRUCache<string, Source>;
  readonly #total: BadRequests;
  /** By what the key has for a checksum: made-up keys of any form take nothing from those with a right one. */
  readonly #totalLookups: { readonly right: TokenBucket; readonly none: TokenBucket };
  readonly #haveAsked = new WeakSet();
  /** When the last of all pauses ends. */
  #quietFrom = -Infinity;
  /** Keys that were refused without a look-up, by why. */
  readonly refusedLookups = { checksum: 0, budget: 0 };

  /** @param now milliseconds by a clock that nobody sets */
  constructor(limits: ThrottleLimits, now: () => number = () => performance.now()) {
    const { windowSeconds, pauseSeconds, totalLookupsPerSecond } = limits;
    const times = { windowMilliseconds: windowSeconds * 1000, pauseMilliseconds: pauseSeconds * 1000 };
    this.#limits = limits;
    this.#now = now;
    this.#ofSource = { most: limits.badKeys, ...times };
    this.#sources = new LRUCache(growingTo(limits.maxSources));
    this.#total = new BadRequests({ most: limits.totalBadKeys, ...times });
    const ofAll = (): TokenBucket => new TokenBucket(totalLookupsPerSecond, totalLookupsPerSecond, now);
    this.#totalLookups = { right: ofAll(), none: ofAll() };
  }

  /** How many sources are throttled now. */
  get throttled(): number {
    const now = this.#now();
    let count = 0;
    for (const { bad } of this.#sources.values()) if (bad.pauseEnd(now) !== null) count += 1;
    return count;
  }

  /** Whether unthrottled sources together sent so much that each is treated as throttled where no acceptable key came. */
  get isTotalReached(): boolean {
    return this.#total.pauseEnd(this.#now()) !== null;
  }

  /** Whether no source is throttled, so that nothing is to be looked at for a request with a key. */
  get isQuiet(): boolean {
    return this.#now() >= this.#quietFrom;
  }

  /** Whether requests of a source without an acceptable key are among too many. @param source null: it is not known */
  limits(source: string | null): boolean {
    return this.#pauseOf(source) !== null || this.isTotalReached;
  }

  /** The key store as it may be asked for a request: where its source sends too many bad requests, not for each made-up key. */
  sparing(keyStore: Pick<KeyStore, 'find' | 'knows'>, bearer: KeyBearer): Pick<KeyStore, 'find'> {
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
   * Counts a request that was denied.
   * @throws GatewayError throttled, in place of the denial, for a throttled source
   */
  denied(source: string, denial: DenialCode): void {
    const known = this.isQuiet ? undefined : this.#sources.get(source);
    const pauseEnd = known?.bad.pauseEnd(this.#now()) ?? null;
    if (withoutAcceptableKey.has(denial)) this.#count((known ?? this.#sourceOf(source)).bad);
    if (pauseEnd !== null && !toldToEverybody.has(denial)) throw this.#refusal(pauseEnd, denial);
  }

  /** Counts a request that brought no acceptable key. @param source null: it is not known, and only counts among all */
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

  #requireLookUp({ source, key, connection }: KeyBearer, pauseEnd: number): void {
    const checksum = checksumIn(key);
    if (checksum === 'wrong') {
      this.refusedLookups.checksum += 1;
      this.count(source);
      throw this.#refusal(pauseEnd, 'the checksum of the key is wrong');
    }
    if (connection !== null && !this.#haveAsked.has(connection)) {
      this.#haveAsked.add(connection);
      return;
    }
    if (this.#totalLookups[checksum].take()) return;
    const { lookupsPerSecond } = this.#limits;
    const of = this.#sourceOf(source);
    of.lookups ??= new TokenBucket(lookupsPerSecond, lookupsPerSecond, this.#now);
    if (of.lookups.take()) return;
    this.refusedLookups.budget += 1;
    this.count(source);
    throw this.#refusal(pauseEnd, 'the key was not looked up');
  }

  #sourceOf(source: string): Source {
    const known = this.#sources.get(source);
    if (known !== undefined) return known;
    const added: Source = { bad: new BadRequests(this.#ofSource), lookups: null };
    this.#sources.set(source, added);
    return added;
  }

  #pauseOf(source: string | null): number | null {
    if (source === null || this.isQuiet) return null;
    return this.#sources.get(source)?.bad.pauseEnd(this.#now()) ?? null;
  }

  #refusal(pauseEnd: number, detail: string): GatewayError {
    const retryAfterSeconds = Math.max(1, Math.ceil((pauseEnd - this.#now()) / 1000));
    const message = `many requests without an acceptable key came from this source, or from all: ${detail}`;
    return new GatewayError('throttled', message, { retryAfterSeconds });
  }
}

/** From how many bad requests within which time on there is a pause, and how long that is. */
interface PauseLimits {
  readonly most: number;
  readonly windowMilliseconds: number;
  readonly pauseMilliseconds: number;
}

/** Counts bad requests: too many in a window begin a pause, and too many in the pause prolong it. */
class BadRequests {
  readonly #limits: PauseLimits;
  #count = 0;
  #windowEndsAt = -Infinity;
  #pauseEndsAt: number | null = null;

  constructor(limits: PauseLimits) {
    this.#limits = limits;
  }

  /** Those in the present window. */
  get count(): number {
    return this.#count;
  }

  /** @returns whether a pause begins with this one */
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

  /** Takes back some that were counted in the present window. */
  forget(count: number): void {
    this.#count = Math.max(0, this.#count - count);
  }

  /** When the pause ends; null where there is none. After a pause it is counted from the beginning. */
  pauseEnd(now: number): number | null {
    if (this.#pauseEndsAt === null || this.#pauseEndsAt > now) return this.#pauseEndsAt;
    this.#pauseEndsAt = null;
    this.#count = 0;
    this.#windowEndsAt = -Infinity;
    return null;
  }
}
