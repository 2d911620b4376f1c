import type { Connection } from './connection.js';

/** How idle connections to an upstream are used again. */
export interface IdleOptions {
  /** How many idle connections may be bound to merchants. The least recently used one closes first. */
  readonly boundIdle: number;
  /** How long a connection rests after a response before it carries another request, in milliseconds, if others are left. */
  readonly restMilliseconds: number;
}

/**
 * The idle connections to one upstream. A connection that has carried a request body serves that merchant only: a service
 * that did not read the body takes it for the beginning of the next request, which would then carry another merchant's
 * identity. Each connection rests after a response, so that a second, late response meets no request.
 */
export class IdleConnections {
  readonly #options: IdleOptions;
  /** Opened, and not used yet: nothing can be late on them. */
  readonly #fresh: Connection[] = [];
  /** Those that any merchant's request may use, the longest idle first. */
  readonly #shared: Connection[] = [];
  /** Those that serve one merchant, the longest idle first. */
  readonly #ofMerchant = new Map<string, Connection[]>();
  /** The bound ones of all merchants, the longest idle first. */
  readonly #bound = new Set<Connection>();

  constructor(options: IdleOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#fresh.length + this.#shared.length + this.#bound.size;
  }

  /** How many are bound to merchants. */
  get bound(): number {
    return this.#bound.size;
  }

  /** Adds a connection that was just opened, or has just rested for one turn of the event loop. */
  add(connection: Connection): void {
    const { boundTo, isUsed } = connection;
    if (boundTo === null) (isUsed ? this.#shared : this.#fresh).push(connection);
    else {
      const own = this.#ofMerchant.get(boundTo);
      if (own === undefined) this.#ofMerchant.set(boundTo, [connection]);
      else own.push(connection);
      this.#bound.add(connection);
      const [leastRecentlyUsed] = this.#bound;
      if (leastRecentlyUsed === undefined || this.#bound.size <= this.#options.boundIdle) return;
      this.remove(leastRecentlyUsed);
      leastRecentlyUsed.destroy(new Error('more idle connections than upstreams.*.boundIdle are bound to merchants'));
    }
  }

  /**
   * Takes the connection that a merchant's request uses: the last one that has rested, so that the others may close.
   * @param now by `performance.now()`
   * @param mostResting how many may rest before the longest idle one is taken; 0: none rests, the last one is taken
   */
  take(merchantId: string, now: number, mostResting: number): Connection | null {
    const own = this.#ofMerchant.get(merchantId);
    // One more bound connection than there may be would close another one.
    const mostOwn = this.#bound.size < this.#options.boundIdle ? mostResting : 0;
    const connection =
      (own === undefined ? undefined : this.#chosen(own, now, mostOwn)) ??
      this.#chosen(this.#shared, now, mostResting) ??
      this.#fresh.at(-1);
    if (connection === undefined) return null;
    this.remove(connection);
    if (!connection.isStale(now)) return connection;
    connection.destroy(new Error('it was idle for too long'));
    return this.take(merchantId, now, mostResting);
  }

  /** Takes a connection that was opened since then: a service that is stopped ends all the others. */
  takeOpenedSince(merchantId: string, openedSince: number, now: number): Connection | null {
    const usable = [...this.#fresh, ...this.#shared, ...(this.#ofMerchant.get(merchantId) ?? [])];
    const connection = usable.find((each) => each.openedAt >= openedSince && !each.isStale(now)) ?? null;
    if (connection !== null) this.remove(connection);
    return connection;
  }

  /** Removes a connection that is taken or closed. */
  remove(connection: Connection): void {
    const { boundTo, isUsed } = connection;
    if (boundTo === null) removeFrom(isUsed ? this.#shared : this.#fresh, connection);
    else if (this.#bound.delete(connection)) {
      const own = this.#ofMerchant.get(boundTo) ?? [];
      removeFrom(own, connection);
      if (own.length === 0) this.#ofMerchant.delete(boundTo);
    }
  }

  /** All of them. */
  all(): Connection[] {
    return [...this.#fresh, ...this.#shared, ...this.#bound];
  }

  /** @param list ordered by the time since which they are idle */
  #chosen(list: readonly Connection[], now: number, mostResting: number): Connection | undefined {
    if (mostResting === 0 || list.length === 0) return list.at(-1);
    let [low, high] = [0, list.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      const since = list[middle]?.idleSince ?? now;
      if (now - since >= this.#options.restMilliseconds) low = middle + 1;
      else high = middle;
    }
    return list[low - 1] ?? (list.length > mostResting ? list[0] : undefined);
  }
}

function removeFrom(list: Connection[], connection: Connection): void {
  const index = list.lastIndexOf(connection);
  if (index >= 0) list.splice(index, 1);
}
