import { LRUCache } from 'lru-cache';
import { follow } from '../../gateway/eventual.js';
import type { Eventual } from '../../gateway/eventual.js';
import { growingTo } from '../../gateway/growing-to.js';
import type { SharedRate, TokenTake } from '../../gateway/ports.js';
import { GatewayError } from '../request/errors.js';
import { TokenBucket } from '../../gateway/token-bucket.js';

/** The headers that tell a merchant how much it may still ask. */
type RateLimitHeader = 'ratelimit-limit' | 'ratelimit-remaining' | 'ratelimit-reset';

/** Takes the headers of an answer. */
type Tell = (headers: Record<RateLimitHeader, string>) => void;

/** How much one merchant may ask. */
export interface MerchantRateLimits {
  readonly requestsPerSecond: number;
  /** The most at once. */
  readonly burst: number;
}

/** Merchants that are counted at a time. Whoever is forgotten begins anew with a full bucket. */
const maxMerchants = 100_000;

/**
 * Counts the requests of each merchant, over all of its keys: for all gateways together where they share the count and it
 * can be had, else in the memory of this process.
 */
export class MerchantRate {
  readonly #limits: MerchantRateLimits;
  readonly #shared: Pick<SharedRate, 'take'> | null;
  readonly #now: () => number;
  readonly #buckets = new LRUCache<string, TokenBucket>(growingTo(maxMerchants));
  readonly #counts = { together: 0, alone: 0 };

  /**
   * @param shared null: every process counts for itself
   * @param now milliseconds by a clock that nobody sets
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

  /** How many requests were counted together with other gateways, and how many alone; nothing where none are shared. */
  get figures(): Readonly<Record<string, number>> {
    return this.#shared === null ? {} : { ...this.#counts };
  }

  /**
   * Counts a request of a merchant.
   * @param tell told the rate limit headers of its answer, whatever that is
   * @throws GatewayError rate_limited
   */
  count(merchantId: string, tell: Tell): Eventual<void> {
    if (this.#shared === null) {
      this.#judge(this.#takeAlone(merchantId), tell);
      return;
    }
    return follow(this.#shared.take(merchantId), (take) => {
      this.#counts[take === null ? 'alone' : 'together'] += 1;
      this.#judge(take ?? this.#takeAlone(merchantId), tell);
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

  #judge({ taken, tokens }: TokenTake, tell: Tell): void {
    const { requestsPerSecond, burst } = this.#limits;
    const secondsUntil = (wanted: number): number => Math.max(0, Math.ceil((wanted - tokens) / requestsPerSecond));
    tell({
      'ratelimit-limit': String(burst),
      'ratelimit-remaining': String(Math.floor(tokens)),
      'ratelimit-reset': String(secondsUntil(burst)),
    });
    if (taken) return;
    const retryAfterSeconds = Math.max(1, secondsUntil(1));
    throw new GatewayError('rate_limited', 'the merchant asks more than rateLimit allows', { retryAfterSeconds });
  }
}
