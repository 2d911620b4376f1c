/** A rate limiter (token bucket) that refills continuously and holds at most `size` tokens. */
export class TokenBucket {
  readonly #perSecond: number;
  readonly #size: number;
  readonly #now: () => number;
  #tokens: number;
  #filledAt: number;

  /** @param now returns the time of a monotonic clock in milliseconds */
  constructor(perSecond: number, size: number, now: () => number) {
    this.#perSecond = perSecond;
    this.#size = size;
    this.#now = now;
    this.#tokens = size;
    this.#filledAt = now();
  }

  /**
   * Takes a token. Returns false if too few tokens are available.
   * @param reserved minimum number of tokens that must remain in the bucket after the take
   */
  take(reserved = 0): boolean {
    const now = this.#now();
    this.#tokens = Math.min(this.#size, this.#tokens + ((now - this.#filledAt) * this.#perSecond) / 1000);
    this.#filledAt = now;
    if (this.#tokens < 1 + reserved) return false;
    this.#tokens -= 1;
    return true;
  }

  /** Puts a taken token back into the bucket. */
  giveBack(): void {
    this.#tokens = Math.min(this.#size, this.#tokens + 1);
  }

  /** The number of tokens after the last `take` or `giveBack`; it can be a fraction. */
  get tokens(): number {
    return this.#tokens;
  }
}
