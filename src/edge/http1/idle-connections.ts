import type { Connection } from './connection.js';

/** Limits for reusing idle connections to an upstream. */
export interface IdleOptions {
  /**
   * Maximum number of idle connections that are bound (reserved) to merchants. The least recently used one is closed
   * first.
   */
  readonly boundIdle: number;
  /**
   * Minimum time between a response and the next request on its connection, in milliseconds; shorter under load. If a
   * late second response arrives during this time, no request is pending that could receive it.
   */
  readonly restMilliseconds: number;
}

/**
 * The idle connections to one upstream. Unless the service reads every request body, a connection that has carried a
 * body serves only the merchant of that body. Otherwise the service could parse an unread body as the next request,
 * possibly under another merchant's identity. Each connection rests (stays unused) after a response. Otherwise a late
 * second response could be taken for the response to a new request.
 */
export class IdleConnections {
  readonly #options: IdleOptions;
  /** Connections that were never used. They need no rest, because no late response can arrive on them. */
  readonly #fresh: Connection[] = [];
  /** Used connections that can serve any merchant, the longest idle first. */
  readonly #shared: Connection[] = [];
  /** Connections bound to (reserved for) a merchant, by merchant, the longest idle first. */
  readonly #ofMerchant = new Map<string, Connection[]>();
  /** All bound (reserved) connections, of any merchant, the longest idle first. */
  readonly #bound = new Set<Connection>();

  constructor(options: IdleOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#fresh.length + this.#shared.length + this.#bound.size;
  }

  /** Number of connections that are bound to (reserved for) one merchant each. */
  get bound(): number {
    return this.#bound.size;
  }

  /** Adds a connection that was just opened, or that has been idle for one turn of the event loop. */
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
      leastRecentlyUsed.destroy(new Error('idle connections bound to merchants exceed upstreams.*.boundIdle'));
    }
  }

  /**
   * Removes and returns a connection for a merchant's request; null if none can be used now. Prefers connections that
   * are bound to the merchant, then shared ones, then fresh ones. Takes the most recently used connection whose rest
   * (time without use after a response) is over, so that unneeded connections become stale. If no rest is over, but
   * more than `mostResting` connections are idle, takes the longest idle one.
   * @param now `performance.now()`
   * @param mostResting maximum number of connections that are allowed to rest; it applies to the bound connections of
   *   the merchant and to the shared ones separately. 0: none rests, so the most recently used one is taken.
   */
  take(merchantId: string, now: number, mostResting: number): Connection | null {
    const own = this.#ofMerchant.get(merchantId);
    // At the limit of bound connections, the merchant's own connections do not rest. Otherwise this request would bind
    // a further connection, and the pool would have to close a bound connection, perhaps of another merchant.
    const mostOwn = this.#bound.size < this.#options.boundIdle ? mostResting : 0;
    const connection =
      (own === undefined ? undefined : this.#chosen(own, now, mostOwn)) ??
      this.#chosen(this.#shared, now, mostResting) ??
      this.#fresh.at(-1);
    if (connection === undefined) return null;
    this.remove(connection);
    if (!connection.isStale(now)) return connection;
    connection.destroy(new Error('the connection was idle for too long'));
    return this.take(merchantId, now, mostResting);
  }

  /**
   * Removes and returns a connection opened at `openedSince` or later; null if there is none. Used to retry a request
   * whose connection was closed: a service that shuts down closes all its older connections.
   */
  takeOpenedSince(merchantId: string, openedSince: number, now: number): Connection | null {
    const usable = [...this.#fresh, ...this.#shared, ...(this.#ofMerchant.get(merchantId) ?? [])];
    const connection = usable.find((each) => each.openedAt >= openedSince && !each.isStale(now)) ?? null;
    if (connection !== null) this.remove(connection);
    return connection;
  }

  /** Removes a connection that is now in use or closed. */
  remove(connection: Connection): void {
    const { boundTo, isUsed } = connection;
    if (boundTo === null) removeFrom(isUsed ? this.#shared : this.#fresh, connection);
    else if (this.#bound.delete(connection)) {
      const own = this.#ofMerchant.get(boundTo) ?? [];
      removeFrom(own, connection);
      if (own.length === 0) this.#ofMerchant.delete(boundTo);
    }
  }

  /** All idle connections. */
  all(): Connection[] {
    return [...this.#fresh, ...this.#shared, ...this.#bound];
  }

  /** @param list connections ordered by `idleSince` */
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
