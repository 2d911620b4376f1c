import type { RecordRequest, RecordInbox } from '../../../gateway/store-ports.js';
import { queryReplyText, queryText, queryLifetimeMilliseconds } from '../gateway-records.js';
import type { AcknowledgementText } from '../records-link.js';
import type { Seals } from '../seal.js';

/** Access to the queries and replies in Redis, by Redis key. */
export interface QuerySource {
  /** Reads the stored bytes of these Redis keys, in the same order; null for a missing key. */
  read(names: readonly string[]): Promise<readonly (Buffer | null)[]>;
  /** Stores each text under its key, with expiry (PX). */
  write(texts: readonly AcknowledgementText[]): Promise<unknown>;
}

/**
 * Maximum number of queued queries. Beyond this number, queries are dropped, and the requests that wait for their
 * replies get 503. The next request for the record sends a new query.
 */
const maxQueries = 10_000;
/** Maximum length of a query's Redis key. No gateway writes a query with a longer key. */
const longestName = 256;

/**
 * Receives queries from gateways for records that are missing in Redis. Redis reports each query to the registry with
 * an invalidation message.
 */
export class QueryInbox implements RecordInbox {
  readonly #prefix: string;
  readonly #seals: Seals;
  readonly #source: QuerySource;
  readonly #asks = new Map<string, RecordRequest & { readonly at: number }>();
  #received = new Set<string>();
  onWork: () => void = () => undefined;

  /**
   * @param prefix the prefix of the Redis keys of queries; the gateway's id, a number and the record's name follow it
   */
  constructor(prefix: string, seals: Seals, source: QuerySource) {
    [this.#prefix, this.#seals, this.#source] = [prefix, seals, source];
  }

  /**
   * Handles invalidation messages for these Redis keys. Collects the keys of queries, and reads the queries together
   * after this event-loop turn.
   */
  received(names: readonly string[]): void {
    for (const name of names) {
      if (!name.startsWith(this.#prefix) || name.length > longestName || this.#received.size >= maxQueries) continue;
      if (this.#received.size === 0) setImmediate(() => void this.#read());
      this.#received.add(name);
    }
  }

  take(most: number): readonly RecordRequest[] {
    const taken = [...this.#asks.values()].slice(0, most);
    for (const { name } of taken) this.#asks.delete(name);
    return taken.filter(({ at }) => performance.now() - at < queryLifetimeMilliseconds);
  }

  async reply(asks: readonly RecordRequest[], present: ReadonlySet<string>, generation: string): Promise<void> {
    const texts = asks.map(({ name, record }) => ({
      ...{ name, text: this.#seals.seal(name, queryReplyText(present.has(record), generation)) },
      lifetimeMilliseconds: queryLifetimeMilliseconds,
    }));
    // Ignore a failure: the records are already written, and the gateway queries again for the next request.
    await this.#source.write(texts).catch(() => undefined);
  }

  async #read(): Promise<void> {
    const names = [...this.#received];
    this.#received = new Set();
    const texts = await this.#source.read(names).catch(() => []);
    // If another registry writes the records, this registry never takes queries out of the queue. So the queue is
    // cleared when it is full.
    if (this.#asks.size > maxQueries) this.#asks.clear();
    let isAsked = false;
    for (const [index, name] of names.entries()) {
      if (texts[index]?.toString('utf8') !== queryText) continue;
      const record = /^[\w-]{1,64}:\d{1,16}:(.{1,100})$/s.exec(name.slice(this.#prefix.length))?.[1];
      if (record === undefined) continue;
      this.#asks.set(name, { name, record, at: performance.now() });
      isAsked = true;
    }
    if (isAsked) this.onWork();
  }
}
