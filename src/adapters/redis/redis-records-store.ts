import type { Redis } from 'ioredis';
import { MalformedRecord, parseMetaRecord } from '../../gateway/records.js';
import type { LiveGateway, MetaRecord, RecordsStore, StoreEntry } from '../../registry/ports.js';
import { connectRedis } from './connection.js';
import type { RedisAddress } from './connection.js';
import { GatewayDirectory } from './gateway-directory.js';
import { RecordNames } from './record-names.js';
import { scanNames } from './scan-names.js';

const entriesAtATime = 500;

/** The gateways' store, as the registry writes it. */
export class RedisRecordsStore implements RecordsStore {
  readonly #redis: Redis;
  readonly #listening: Redis;
  readonly #prefix: string;
  readonly #names: RecordNames;
  readonly #directory: GatewayDirectory;

  /** @param onConnectionError told of each failure of a connection */
  constructor(address: RedisAddress, prefix: string, onConnectionError: (error: Error) => void) {
    this.#prefix = prefix;
    this.#names = new RecordNames(prefix);
    this.#redis = connectRedis(address, onConnectionError);
    this.#listening = connectRedis(address, onConnectionError);
    this.#directory = new GatewayDirectory(this.#redis, this.#listening, this.#names);
  }

  async readMeta(): Promise<MetaRecord | null> {
    const text = await this.#redis.get(this.#names.meta);
    try {
      return text === null ? null : parseMetaRecord(JSON.parse(text));
    } catch (error) {
      if (error instanceof MalformedRecord || error instanceof SyntaxError) return null;
      throw error;
    }
  }

  async writeMeta(meta: MetaRecord): Promise<void> {
    await this.#redis.set(this.#names.meta, JSON.stringify(meta));
  }

  async write(entries: readonly StoreEntry[]): Promise<void> {
    for (let start = 0; start < entries.length; start += entriesAtATime) {
      const pipeline = this.#redis.pipeline();
      for (const { name, value } of entries.slice(start, start + entriesAtATime)) {
        if (value === null) pipeline.del(this.#prefix + name);
        else pipeline.set(this.#prefix + name, JSON.stringify(value));
      }
      const results = (await pipeline.exec()) ?? [];
      for (const [error] of results) if (error !== null) throw error;
    }
  }

  async readRevision(): Promise<number> {
    const revision = Number(await this.#redis.get(this.#names.revision));
    return Number.isSafeInteger(revision) && revision > 0 ? revision : 0;
  }

  async publishRevision(revision: number): Promise<void> {
    await this.#redis.set(this.#names.revision, String(revision));
  }

  gateways(): Promise<readonly LiveGateway[]> {
    return this.#directory.list();
  }

  async *names(prefix: string): AsyncGenerator<string> {
    for await (const name of scanNames(this.#redis, this.#prefix + prefix)) yield name.slice(this.#prefix.length);
  }

  close(): Promise<void> {
    this.#redis.disconnect();
    this.#listening.disconnect();
    return Promise.resolve();
  }
}
