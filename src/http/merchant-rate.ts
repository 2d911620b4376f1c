import { LRUCache } from 'lru-cache';
import { growingTo } from '../gateway/growing-to.js';
import { GatewayError } from './errors.js';
import { TokenBucket } from './token-bucket.js';

/** The headers that tell a merchant how much it may still ask. */
type RateLimitHeader = 'ratelimit-limit' | 'ratelimit-remaining' | 'ratelimit-reset';

/** How much one merchant may ask. */
export interface MerchantRateLimits {
  readonly requestsPerSecond: number;
  /** The most at once. */
  readonly burst: number;
}

/** Merchants that are counted at a time. Whoever is forgotten begins anew with a full bucket. */
const maxMerchants = 100_000;

/** Counts the requests of each merchant, over all of its keys, in the memory of this process. */
export class MerchantRate {
  readonly #limits: MerchantRateLimits;
  readonly #now: () => number;
  readonly #buckets = new LRUCache<string, TokenBucket>(growingTo(maxMerchants));

  /** @param now milliseconds by a clock that nobody sets */
  constructor(limits: MerchantRateLimits, now: () => number = () => performance.now()) {
    this.#limits = limits;
    this.#now = now;
  }

  /**
   * Counts a request of a merchant.
   * @param tell told the rate limit headers of its answer, whatever that is
   * @throws GatewayError rate_limited
   */
  count(merchantId: string, tell: (headers: Record<RateLimitHeader, string>) => void): void {
    let bucket = this.#buckets.get(merchantId);
    if (bucket === undefined) {
      bucket = new TokenBucket(this.#limits.requestsPerSecond, this.#limits.burst, this.#now);
      this.#buckets.set(merchantId, bucket);
    }
    const taken = bucket.take();
    tell({
      'ratelimit-limit': String(bucket.size),
      'ratelimit-remaining': String(bucket.remaining),
      'ratelimit-reset': String(bucket.secondsUntil(bucket.size)),
    });
    if (taken) return;
    const retryAfterSeconds = Math.max(1, bucket.secondsUntil(1));
    throw new GatewayError('rate_limited', 'the merchant asks more than rateLimit allows', { retryAfterSeconds });
  }
}
