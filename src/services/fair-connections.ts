import { DatabaseError } from '../database/database-error.js';
import type { PoolOptions } from '../database/postgres.js';
import type { Timers } from './periodic-task.js';

/** The size of the connection pool, and how long a request waits for a connection before it fails. */
export interface FairConnectionsOptions {
  readonly pool: Pick<PoolOptions, 'maxConnections' | 'connectTimeoutSeconds'>;
  readonly timers: Timers;
}

/**
 * Limits each merchant's share of the connection pool. Otherwise one merchant's requests that wait for locks could take
 * all connections. A merchant can take a connection only if it uses fewer connections than are free. So a single
 * merchant gets at most half (rounded up), and two merchants get about a third each. The last free connection goes only
 * to a merchant that uses no connection.
 */
export class FairConnectionShares {
  readonly #options: FairConnectionsOptions;
  readonly #held = new Map<string, number>();
  /** For each merchant, the functions that let the waiting requests proceed, in the order of the requests. */
  readonly #waiting = new Map<string, Set<() => void>>();
  #free: number;

  constructor(options: FairConnectionsOptions) {
    this.#options = options;
    this.#free = options.pool.maxConnections;
  }

  /**
   * Runs `act` once the merchant is allowed to take a connection. `act` must use only one connection at a time.
   * @throws DatabaseError if the merchant gets no connection within `connectTimeoutSeconds`
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
        queue.delete(resume);
        if (queue.size === 0) this.#waiting.delete(merchantId);
      };
      const cancelTimer = timers.after(pool.connectTimeoutSeconds * 1000, () => {
        leave();
        reject(new DatabaseError(waitTimedOut));
      });
      const resume = (): void => {
        cancelTimer();
        leave();
        this.#take(merchantId);
        resolve();
      };
      queue.add(resume);
    });
  }

  /**
   * Lets waiting requests proceed as long as connections are available. Requests of the merchant that uses the fewest
   * connections come first.
   */
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

const waitTimedOut =
  'The request timed out: other requests of the same merchant held all database connections that one merchant may use. Find what blocks those requests, or raise services.database.maxConnections.';
