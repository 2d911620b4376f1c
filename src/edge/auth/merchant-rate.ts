import { LRUCache } from 'lru-cache';
import { follow } from '../../gateway/eventual.js';
import type { Eventual } from '../../gateway/eventual.js';
import { lruOptions } from '../../gateway/growing-to.js';
import type { SharedRate, TokenTake } from '../../gateway/ports.js';
import { GatewayError } from '../request/errors.js';
import { TokenBucket } from '../../gateway/token-bucket.js';
import type { RateLimit } from './step-sources.js';

/**
 * Response headers that report a merchant's remaining quota: the two headers of
 * draft-ietf-httpapi-ratelimit-headers-10, and the three headers of draft versions up to 06, which many clients still
 * read.
 */
type RateLimitHeader = 'ratelimit-policy' | 'ratelimit' | 'ratelimit-limit' | 'ratelimit-remaining' | 'ratelimit-reset';

/** Receives the rate limit headers of a response. */
type SetHeaders = (headers: Record<RateLimitHeader, string>) => void;

/** Rate limit of one merchant. */
export interface MerchantRateLimits {
  readonly requestsPerSecond: number;
  /** Size of the token bucket: the maximum number of requests at once, after an idle time. */
  readonly burst: number;
}

/** Maximum number of merchants tracked at a time. An evicted merchant starts again with a full bucket. */
const maxMerchants = 100_000;

/**
 * Limits the request rate of each merchant across all of its keys. If a shared store is configured and available, all
 * gateway processes share one count. Otherwise each process counts alone.
 */
export class MerchantRate implements RateLimit {
  readonly #limits: MerchantRateLimits;
  readonly #shared: Pick<SharedRate, 'take'> | null;
  readonly #now: () => number;
  readonly #buckets = new LRUCache<string, TokenBucket>(lruOptions(maxMerchants));
  readonly #counts = { together: 0, alone: 0 };

  /**
   * @param shared the token buckets that all gateways share; null if each process counts alone
   * @param now monotonic clock in milliseconds
   */
  constructor(
    limits: MerchantRateLimits,
    shared: Pick<SharedRate, 'take'> | null = null,
    now: () => number = () => performance.now(),
  ) {
    this.#limits = limits;
    this.#shared = shared;
    this.#now = now;
  }

  /**
   * Number of requests counted in the shared store (`together`) and only in this process (`alone`); empty without a
   * shared store.
   */
  get stats(): Readonly<Record<string, number>> {
    return this.#shared === null ? {} : { ...this.#counts };
  }

  /**
   * Counts a request of a merchant.
   * @param setHeaders called with the rate limit headers, even if the request is rejected
   * @throws GatewayError rate_limited
   */
  count(merchantId: string, setHeaders: SetHeaders): Eventual<void> {
    if (this.#shared === null) {
      this.#judge(this.#takeAlone(merchantId), setHeaders);
      return;
    }
    return follow(this.#shared.take(merchantId), (take) => {
      this.#counts[take === null ? 'alone' : 'together'] += 1;
      this.#judge(take ?? this.#takeAlone(merchantId), setHeaders);
    });
  }

  #takeAlone(merchantId: string): TokenTake {
    let bucket = this.#buckets.get(merchantId);
    if (bucket === undefined) {
      bucket = new TokenBucket(this.#limits.requestsPerSecond, this.#limits.burst, this.#now);
      this.#buckets.set(merchantId, bucket);
    }
    return { taken: bucket.take(), tokens: bucket.tokens };
  }

  #judge({ taken, tokens }: TokenTake, setHeaders: SetHeaders): void {
    const { requestsPerSecond, burst } = this.#limits;
    const secondsUntil = (wanted: number): number => Math.max(0, Math.ceil((wanted - tokens) / requestsPerSecond));
    const [remaining, reset] = [Math.floor(tokens), secondsUntil(burst)];
    setHeaders({
      // `w`: the number of seconds after which an empty bucket is full again.
      'ratelimit-policy': `"merchant";q=${burst};w=${Math.ceil(burst / requestsPerSecond)}`,
      ratelimit: `"merchant";r=${remaining};t=${reset}`,
      'ratelimit-limit': String(burst),
      'ratelimit-remaining': String(remaining),
      'ratelimit-reset': String(reset),
    });
    if (taken) return;
    const retryAfterSeconds = Math.max(1, secondsUntil(1));
    throw new GatewayError('rate_limited', 'the merchant exceeds rateLimit.requestsPerSecond', { retryAfterSeconds });
  }
}
