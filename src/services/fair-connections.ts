import { DatabaseError } from '../database/database-error.js';
import type { PoolOptions } from '../database/postgres.js';
import type { Timers } from './periodic-task.js';

/** How many connections there are, and how long a request may wait for one. */
export interface FairConnectionsOptions {
  readonly pool: Pick<PoolOptions, 'maxConnections' | 'connectTimeoutSeconds'>;
  readonly timers: Timers;
}

/**
 * Stands before the pool of connections, so that one merchant does not take all of them: its requests may wait long for its
 * own locks, and those of others would wait behind them for a connection. A merchant may hold no more than are free: one
 * alone gets half, two get a third each, and there is one for whoever has none.
 */
export class FairConnections {
  readonly #options: FairConnectionsOptions;
  readonly #held = new Map<string, number>();
  /** Who waits, by merchant, in the order in which they came; what is in it lets the first one go on. */
  readonly #waiting = new Map<string, Set<() => void>>();
  #free: number;

  constructor(options: FairConnectionsOptions) {
    this.#options = options;
    this.#free = options.pool.maxConnections;
  }

  /**
   * Does what needs a connection, one at a time, once the merchant may have it.
   * @throws DatabaseError where it may not in time
   */
  async use<Result>(merchantId: string, act: () => Result | Promise<Result>): Promise<Result> {
    if (this.#mayTake(merchantId)) this.#take(merchantId);
    else await this.#wait(merchantId);
    try {
      return await act();
    } finally {
      this.#giveBack(merchantId);
    }
  }

  #mayTake(merchantId: string): boolean {
    return this.#heldBy(merchantId) < this.#free;
  }

  #heldBy(merchantId: string): number {
    return this.#held.get(merchantId) ?? 0;
  }

  #take(merchantId: string): void {
    this.#free -= 1;
    this.#held.set(merchantId, this.#heldBy(merchantId) + 1);
  }

  #giveBack(merchantId: string): void {
    this.#free += 1;
    const held = this.#heldBy(merchantId) - 1;
    if (held === 0) this.#held.delete(merchantId);
    else this.#held.set(merchantId, held);
    this.#letIn();
  }

  #wait(merchantId: string): Promise<void> {
    const queue = this.#waiting.get(merchantId) ?? new Set();
    this.#waiting.set(merchantId, queue);
    const { pool, timers } = this.#options;
    return new Promise((resolve, reject) => {
      const leave = (): void => {
        queue.delete(goOn);
        if (queue.size === 0) this.#waiting.delete(merchantId);
      };
      const cancelTimer = timers.after(pool.connectTimeoutSeconds * 1000, () => {
        leave();
        reject(new DatabaseError(tooLate));
      });
      const goOn = (): void => {
        cancelTimer();
        leave();
        this.#take(merchantId);
        resolve();
      };
      queue.add(goOn);
    });
  }

  /** Lets in who waits and may go on, first of the merchant that holds the fewest. */
  #letIn(): void {
    for (;;) {
      const fewest = [...this.#waiting.keys()].reduce<string | null>(
        (least, one) => (least === null || this.#heldBy(one) < this.#heldBy(least) ? one : least),
        null,
      );
      if (fewest === null || !this.#mayTake(fewest)) return;
      const [first] = this.#waiting.get(fewest) ?? [];
      first?.();
    }
  }
}

const tooLate =
  'A merchant had its share of the connections to the database, and none came free in time: look for what holds it up, or allow more connections.';
