import { LinkedList } from './linked-list.js';
import type { Links } from './linked-list.js';

/** An address, of IPv6 its /64, and its open connections. */
export interface Source<Connection extends Links<Connection>> extends Links<Source<Connection>> {
  readonly name: string;
  /** How many are open. */
  open: number;
  /** Those that never had an accepted request, the oldest first. */
  readonly withoutKey: LinkedList<Connection>;
}

/**
 * The sources of a listener's connections, and which of them has most without a key. An attacker decides how often that is asked, so
 * each step takes constant time: sources stand in one list for each number of such connections, and a step changes a number by one.
 */
export class Sources<Connection extends Links<Connection>> {
  readonly #byName = new Map<string, Source<Connection>>();
  /** By how many connections without a key they have; those that came to this number first stand first. */
  readonly #byCount: LinkedList<Source<Connection>>[] = [];
  /** The largest of these numbers. */
  #most = 0;
  #withoutKey = 0;

  /** How many connections never had an accepted request. */
  get withoutKey(): number {
    return this.#withoutKey;
  }

  /** The oldest connection without a key of the source that has most of them; null where there is none. */
  get oldestOfMost(): Connection | null {
    return this.#byCount[this.#most]?.first?.withoutKey.first ?? null;
  }

  /** How many connections of a source are open. */
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

  /** Says that a connection has had its first accepted request, or is closed without one. */
  removeWithoutKey(source: Source<Connection>, connection: Connection): void {
    this.#leaveCount(source);
    source.withoutKey.remove(connection);
    this.#withoutKey -= 1;
    this.#enterCount(source);
  }

  /** Says that a connection is closed. */
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
