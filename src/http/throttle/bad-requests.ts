/** From how many bad requests within which time on there is a pause, and how long that is. */
export interface PauseLimits {
  readonly most: number;
  readonly windowMilliseconds: number;
  readonly pauseMilliseconds: number;
}

/** Counts bad requests: too many in a window begin a pause, and too many in the pause prolong it. */
export class BadRequests {
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
