/** How long a request with a cached record waits for a fresher one. */
const patienceMilliseconds = 3;
/** How long no request waits after a wait that timed out. */
const betweenWaitsMilliseconds = 250;

/** The result of a wait that timed out. */
export const timedOut = Symbol('late');

/** The short wait for fresh data of requests that the cache can serve otherwise. */
export class FreshnessWait {
  readonly #isFresh: () => boolean;
  readonly #now: () => number;
  #waiting: Promise<typeof timedOut> | null = null;
  /** When a wait last timed out without fresh data. */
  #lateAt = -Infinity;

  constructor(isFresh: () => boolean, now: () => number) {
    [this.#isFresh, this.#now] = [isFresh, now];
  }

  /** Whether a wait timed out recently. Further requests need not repeat it. */
  get isOver(): boolean {
    return this.#now() - this.#lateAt < betweenWaitsMilliseconds;
  }

  /**
   * Resolves after the timeout, once data that arrived by then is processed, even if this process was blocked.
   * Concurrent waits share it.
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
