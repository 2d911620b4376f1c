import { LinkedList } from './linked-list.js';
import type { Links } from './linked-list.js';

/** A source (an IPv4 address or an IPv6 /64) and its open connections. */
export interface Source<Connection extends Links<Connection>> extends Links<Source<Connection>> {
  readonly name: string;
  /** Number of open connections. */
  open: number;
  /** Connections without an accepted request so far, the oldest first. */
  readonly withoutKey: LinkedList<Connection>;
}

/**
 * Tracks the sources of a listener's connections, and finds the source with the most connections without an accepted
 * request. An attacker controls how often this search runs, so each operation is O(1). Sources with the same number of
 * connections without an accepted request form one list. A new or removed connection changes this number by one, so its
 * source moves only to the list of the next higher or lower number.
 */
export class Sources<Connection extends Links<Connection>> {
  readonly #byName = new Map<string, Source<Connection>>();
  /**
   * Lists of sources, indexed by the number of connections without an accepted request. Each list is ordered by when
   * its sources reached this number.
   */
  readonly #byCount: LinkedList<Source<Connection>>[] = [];
  /** The largest number of connections without an accepted request that any source has. */
  #most = 0;
  #withoutKey = 0;

  /** Number of connections without an accepted request so far. */
  get withoutKey(): number {
    return this.#withoutKey;
  }

  /**
   * The oldest connection without an accepted request, of the source that has the most of these connections. Null if
   * there is no such connection.
   */
  get oldestOfMost(): Connection | null {
    return this.#byCount[this.#most]?.first?.withoutKey.first ?? null;
  }

  /** Number of open connections of a source. */
  openOf(name: string): number {
    return this.#byName.get(name)?.open ?? 0;
  }

  /** Counts a new connection for its source. */
  add(name: string, connection: Connection): Source<Connection> {
    let source = this.#byName.get(name);
    if (source === undefined) {
      source = { name, open: 0, withoutKey: new LinkedList(), previous: null, next: null };
      this.#byName.set(name, source);
    }
    source.open += 1;
    this.#leaveCount(source);
    source.withoutKey.append(connection);
    this.#withoutKey += 1;
    this.#enterCount(source);
    return source;
  }

  /**
   * Removes a connection from the list `withoutKey`, because a request on it was accepted or the connection has closed.
   */
  removeWithoutKey(source: Source<Connection>, connection: Connection): void {
    this.#leaveCount(source);
    source.withoutKey.remove(connection);
    this.#withoutKey -= 1;
    this.#enterCount(source);
  }

  /** Removes a closed connection from the count of its source. */
  closed(source: Source<Connection>): void {
    source.open -= 1;
    if (source.open === 0) this.#byName.delete(source.name);
  }

  #leaveCount(source: Source<Connection>): void {
    if (source.withoutKey.size > 0) this.#byCount[source.withoutKey.size]?.remove(source);
  }

  #enterCount(source: Source<Connection>): void {
    const count = source.withoutKey.size;
    if (count > 0) (this.#byCount[count] ??= new LinkedList()).append(source);
    if (count > this.#most || this.#byCount[this.#most]?.size === 0) this.#most = count;
  }
}
