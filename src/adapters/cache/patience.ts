/** How long a request whose record is held waits for a fresher one. */
const patienceMilliseconds = 3;
/** How long after one that waited in vain no other one does. */
const betweenWaitsMilliseconds = 250;

/** What a wait ends with that came to nothing. */
export const late = Symbol('late');

/** The short wait of requests that can be answered with what is held, if nothing better comes. */
export class Patience {
  readonly #isFresh: () => boolean;
  readonly #now: () => number;
  #waiting: Promise<typeof late> | null = null;
  /** When a request last waited in vain to be fresh. */
  #lateAt = -Infinity;

  constructor(isFresh: () => boolean, now: () => number) {
    [this.#isFresh, this.#now] = [isFresh, now];
  }

  /** Whether a request has just waited in vain: the others need not find out the same. */
  get isOver(): boolean {
    return this.#now() - this.#lateAt < betweenWaitsMilliseconds;
  }

  /** Ends when what has come by then has been read, also where this process was held up. Those who wait share it. */
  end(): Promise<typeof late> {
    this.#waiting ??= new Promise((resolve) => {
      setTimeout(() => {
        setImmediate(() => {
          this.#waiting = null;
          if (!this.#isFresh()) this.#lateAt = this.#now();
          resolve(late);
        });
      }, patienceMilliseconds);
    });
    return this.#waiting;
  }
}
