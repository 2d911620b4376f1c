/** A token bucket: refills continuously and holds at most `size` tokens. */
export class TokenBucket {
  readonly #perSecond: number;
  readonly #size: number;
  readonly #now: () => number;
  #tokens: number;
  #filledAt: number;

  /** @param now monotonic clock in milliseconds */
  constructor(perSecond: number, size: number, now: () => number) {
    this.#perSecond = perSecond;
    this.#size = size;
    this.#now = now;
    this.#tokens = size;
    this.#filledAt = now();
  }

  /**
   * Takes a token; false if too few are available.
   * @param reserved tokens that must remain after this one
   */
  take(reserved = 0): boolean {
    const now = this.#now();
    this.#tokens = Math.min(this.#size, this.#tokens + ((now - this.#filledAt) * this.#perSecond) / 1000);
    this.#filledAt = now;
    if (this.#tokens < 1 + reserved) return false;
    this.#tokens -= 1;
    return true;
  }

  /** Returns a token to the bucket. */
  giveBack(): void {
    this.#tokens = Math.min(this.#size, this.#tokens + 1);
  }

  /** Tokens left after the last `take` (fractional). */
  get tokens(): number {
    return this.#tokens;
  }
}
