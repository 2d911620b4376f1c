import { LRUCache } from 'lru-cache';
import { follow } from '../gateway/eventual.js';
import { growingTo } from '../gateway/growing-to.js';
import type { KeyStore } from '../gateway/ports.js';
import type { DenialCode } from '../policy/denials.js';
import { GatewayError } from './errors.js';
import { TokenBucket } from '../gateway/token-bucket.js';

/** When a source is throttled, and how much is remembered. */
export interface ThrottleLimits {
  /** Bad keys within `windowSeconds` from which on a source is throttled. */
  readonly badKeys: number;
  readonly windowSeconds: number;
  readonly pauseSeconds: number;
  /** Keys never seen before that are still looked up for one throttled source. */
  readonly lookupsPerSecond: number;
  readonly maxSources: number;
}

interface Source {
  badKeys: number;
  windowEndsAt: number;
  /** Null while it is not throttled. */
  pause: { readonly endsAt: number; readonly lookups: TokenBucket } | null;
}

/** Look-up ids that are remembered as those of real keys; as many as a gateway's busiest merchants have. */
const maxKnownKeys = 100_000;

/** What says that the key itself is bad. Whoever calls from a wrong address is no guesser. */
const badKeyDenials: ReadonlySet<DenialCode> = new Set<DenialCode>([
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
 * Slows down sources that try keys, and never the owner of a key: it counts by source and not by key, so that nobody can
 * lock a merchant out, and a valid key passes from a throttled source too. All else that such a source sends is answered
 * alike, so that it does not learn which of its keys exist.
 *
 * It spares the store: a key that was ever seen to be real is looked up as always; of the others, so many a second.
 */
export class BadKeyThrottle {
  readonly #limits: ThrottleLimits;
  readonly #now: () => number;
  readonly #sources: LRUCache<string, Source>;
  readonly #known = new LRUCache<string, true>(growingTo(maxKnownKeys));

  /** @param now milliseconds by a clock that nobody sets */
  constructor(limits: ThrottleLimits, now: () => number = () => performance.now()) {
    this.#limits = limits;
    this.#now = now;
    this.#sources = new LRUCache(growingTo(limits.maxSources));
  }

  /** How many sources are throttled now. */
  get throttled(): number {
    let count = 0;
    for (const { pause } of this.#sources.values()) if (pause !== null && pause.endsAt > this.#now()) count += 1;
    return count;
  }

  /** A key store that notes which keys are real, and is not asked in vain on behalf of a throttled source. */
  sparing(keyStore: Pick<KeyStore, 'find'>, source: string): Pick<KeyStore, 'find'> {
    return {
      find: (lookupId) => {
        const pause = this.#pauseOf(source);
        if (pause !== null && !this.#known.has(lookupId) && !pause.lookups.take()) {
          throw this.#refusal(pause.endsAt, 'the key was not looked up');
        }
        return follow(keyStore.find(lookupId), (answer) => {
          // Noted when it is read; while it is held it needs no look-up.
          if (answer.credential !== null && answer.source !== 'cache') this.#known.set(lookupId, true);
          return answer;
        });
      },
    };
  }

  /**
   * Hears how a request ended that was denied.
   * @throws GatewayError throttled, in place of the denial, for a throttled source
   */
  denied(source: string, denial: DenialCode): void {
    const pause = this.#pauseOf(source);
    if (pause === null) {
      if (badKeyDenials.has(denial)) this.#count(source);
    } else if (!toldToEverybody.has(denial)) {
      throw this.#refusal(pause.endsAt, denial);
    }
  }

  #pauseOf(source: string): Source['pause'] {
    if (this.#sources.size === 0) return null;
    const pause = this.#sources.get(source)?.pause ?? null;
    if (pause === null || pause.endsAt > this.#now()) return pause;
    this.#sources.delete(source);
    return null;
  }

  #count(source: string): void {
    const { badKeys, windowSeconds, pauseSeconds, lookupsPerSecond } = this.#limits;
    const now = this.#now();
    let seen = this.#sources.get(source);
    if (seen === undefined || seen.windowEndsAt <= now) {
      seen = { badKeys: 0, windowEndsAt: now + windowSeconds * 1000, pause: null };
      this.#sources.set(source, seen);
    }
    seen.badKeys += 1;
    if (seen.badKeys < badKeys) return;
    const lookups = new TokenBucket(lookupsPerSecond, lookupsPerSecond, this.#now);
    seen.pause = { endsAt: now + pauseSeconds * 1000, lookups };
  }

  #refusal(endsAt: number, detail: string): GatewayError {
    const retryAfterSeconds = Math.max(1, Math.ceil((endsAt - this.#now()) / 1000));
    return new GatewayError('throttled', `many bad keys came from this source: ${detail}`, { retryAfterSeconds });
  }
}
