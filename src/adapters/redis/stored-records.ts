import { Cluster, type Redis } from 'ioredis';
import { connectAny, type RedisAddress } from './connection.js';
import { RecordNames, scanNames } from './record-names.js';
import { malformedText } from './record-text.js';
import { untilReady } from './until-ready.js';

const commandTimeoutMilliseconds = 5_000;
const textsAtATime = 1_000;

/**
 * Reads and deletes the records as stored in Redis, for command-line tools. Has no cache and receives no invalidation
 * messages. The registry does not list such a tool as a gateway.
 */
export class RedisStoredRecords {
  readonly #redis: Redis | Cluster;
  readonly #prefix: string;
  readonly #names: RecordNames;

  constructor(address: RedisAddress, prefix: string) {
    // Connection errors are ignored here, because the affected command rejects.
    this.#redis = connectAny({ ...address, commandTimeoutMilliseconds }, () => undefined);
    this.#prefix = prefix;
    this.#names = new RecordNames(prefix);
  }

  /**
   * Reads the text of a record; null if it is missing.
   * @param name Redis key, without the prefix
   */
  async read(name: string): Promise<string | null> {
    await this.#connected();
    return this.#redis.get(this.#prefix + name).catch(malformedText);
  }

  /** Reads the lookup id and the text of every key record. */
  async *keys(): AsyncGenerator<readonly [lookupId: string, text: string]> {
    for await (const [node, names] of this.#pages(this.#names.key(''))) yield* this.#read(node, names);
  }

  /** Deletes every Redis key with the prefix. */
  async removeAll(): Promise<void> {
    for await (const [node, names] of this.#pages(this.#prefix)) await Promise.all(names.map((name) => node.del(name)));
  }

  close(): void {
    this.#redis.disconnect();
  }

  /** Yields the Redis keys with this prefix in pages. All keys of a page are from one node. */
  async *#pages(prefix: string): AsyncGenerator<readonly [node: Redis, names: readonly string[]]> {
    await this.#connected();
    for (const node of this.#redis instanceof Cluster ? this.#redis.nodes('master') : [this.#redis]) {
      if (node.status === 'wait') await node.connect();
      let names: string[] = [];
      for await (const name of scanNames(node, prefix)) {
        names.push(name);
        if (names.length < textsAtATime) continue;
        yield [node, names];
        names = [];
      }
      yield [node, names];
    }
  }

  async *#read(node: Redis, names: readonly string[]): AsyncGenerator<readonly [string, string]> {
    // One GET per Redis key: in a Cluster, MGET accepts only keys of one slot, but these keys are in different slots.
    const texts = await Promise.all(names.map((name) => node.get(name).catch(malformedText)));
    for (const [index, name] of names.entries()) {
      const text = texts[index] ?? null;
      if (text !== null) yield [name.slice(this.#names.key('').length), text];
    }
  }

  async #connected(): Promise<void> {
    if (this.#redis.status !== 'ready') await untilReady(this.#redis, commandTimeoutMilliseconds);
  }
}
