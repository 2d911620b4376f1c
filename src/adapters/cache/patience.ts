/** How long a request waits for fresh data if the cache could serve a stale record instead. */
const patienceMilliseconds = 3;
/** For this long after a wait has timed out, further requests do not wait: they get their stale records at once. */
const betweenWaitsMilliseconds = 250;

/** The value to which a wait for fresh data resolves if it times out. */
export const timedOut = Symbol('late');

/** Lets requests wait briefly for fresh data before they get a stale record from the cache. */
export class FreshnessWait {
  readonly #isFresh: () => boolean;
  readonly #now: () => number;
  #waiting: Promise<typeof timedOut> | null = null;
  /** When a wait last timed out without fresh data, in milliseconds of the clock `now`. */
  #lateAt = -Infinity;

  constructor(isFresh: () => boolean, now: () => number) {
    [this.#isFresh, this.#now] = [isFresh, now];
  }

  /** Whether a wait timed out within the last 250 ms. If so, further requests skip the wait. */
  get isOver(): boolean {
    return this.#now() - this.#lateAt < betweenWaitsMilliseconds;
  }

  /**
   * Resolves after `patienceMilliseconds`. Concurrent callers share one wait. If the cache is still stale when the wait
   * ends, the requests of the next 250 ms skip the wait. Before this check, `setImmediate` lets Node read data that
   * arrived while the process was blocked.
   */
  end(): Promise<typeof timedOut> {
    this.#waiting ??= new Promise((resolve) => {
      setTimeout(() => {
        setImmediate(() => {
          this.#waiting = null;
          if (!this.#isFresh()) this.#lateAt = this.#now();
          resolve(timedOut);
        });
      }, patienceMilliseconds);
    });
    return this.#waiting;
  }
}
