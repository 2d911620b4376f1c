/** Lets so many through a second on average, and at most a bucketful at once. */
export class TokenBucket {
  readonly #perSecond: number;
  readonly #size: number;
  readonly #now: () => number;
  #tokens: number;
  #filledAt: number;

  /** @param now milliseconds by a clock that nobody sets */
  constructor(perSecond: number, size: number, now: () => number) {
    this.#perSecond = perSecond;
    this.#size = size;
    this.#now = now;
    this.#tokens = size;
    this.#filledAt = now();
  }

  /**
   * Takes a token; false where there is none.
   * @param reserved how many have to be left behind it
   */
  take(reserved = 0): boolean {
    const now = this.#now();
    this.#tokens = Math.min(this.#size, this.#tokens + ((now - this.#filledAt) * this.#perSecond) / 1000);
    this.#filledAt = now;
    if (this.#tokens < 1 + reserved) return false;
    this.#tokens -= 1;
    return true;
  }

  /** Puts back a token that was taken. */
  giveBack(): void {
    this.#tokens = Math.min(this.#size, this.#tokens + 1);
  }

  /** What is left after the last `take`, with fractions. */
  get tokens(): number {
    return this.#tokens;
  }
}
