import type { Redis } from 'ioredis';
import type { LiveGateway, MetaRecord, RecordsStore, StoredMeta, StoreEntry } from '../../registry/ports.js';
import { connectRedis } from './connection.js';
import type { RedisAddress } from './connection.js';
import { damagedText } from './damaged-text.js';
import { GatewayDirectory } from './gateway-directory.js';
import { InvalidationListener } from './invalidation-listener.js';
import { Outage } from './outage.js';
import type { OutageEvents } from './outage.js';
import { RecordNames } from './record-names.js';
import { highestThatStayed, recordWrite } from './record-write.js';
import { revisionIn } from './revision.js';
import { SameServer } from './same-server.js';
import { scanNames } from './scan-names.js';
import { storedMeta } from './store-state.js';
import { WriterMark } from './writer-mark.js';

const entriesAtATime = 500;

/** The gateways' store on one server, or on that which the sentinels name, as the registry writes it. */
export class RedisRecordsStore implements RecordsStore {
  readonly #redis: Redis;
  readonly #listening: Redis;
  readonly #prefix: string;
  readonly #names: RecordNames;
  readonly #directory: GatewayDirectory;
  readonly #mark: WriterMark;

  constructor(address: RedisAddress, prefix: string, events: OutageEvents) {
    this.#prefix = prefix;
    this.#names = new RecordNames(prefix);
    const outage = new Outage(events);
    const [redis, listening] = [connectRedis(address, outage.failed), connectRedis(address, outage.failed)];
    for (const one of [redis, listening]) {
      one.on('ready', () => {
        if (redis.status === 'ready' && listening.status === 'ready') outage.recovered();
      });
    }
    const same = new SameServer(redis, listening, () => undefined);
    redis.on('close', () => {
      this.#directory.missed(); // the next one may lead to another server
    });
    const gateways = this.#names.gateway('');
    const listener = new InvalidationListener(listening, [gateways], {
      onChanged: (names) => {
        this.#directory.heard(names);
      },
      onEverythingChanged: () => {
        this.#directory.missed();
      },
      onListening: () => {
        this.#directory.missed();
      },
      onDeaf: () => {
        this.#directory.missed();
      },
    });
    this.#directory = new GatewayDirectory({
      get hearing() {
        return listener.hearing && same.holds;
      },
      get epoch() {
        return listener.epoch;
      },
      catchUp: () => listener.catchUp(),
      names: () => scanNames(redis, gateways),
      read: (names) => redis.mget([...names]),
    });
    [this.#redis, this.#listening] = [redis, listening];
    this.#mark = new WriterMark(redis, this.#names.writer);
  }

  async readMeta(): Promise<StoredMeta | null> {
    return storedMeta(await this.#redis.get(this.#names.meta).catch(damagedText));
  }

  /** A server is emptied, or goes back, as a whole: the meta record and the revision tell. */
  async begin(): Promise<boolean> {
    await this.#mark.begin();
    return true;
  }

  writeMeta(meta: MetaRecord): Promise<void> {
    return this.#mark.set(this.#names.meta, JSON.stringify(meta));
  }

  async write(entries: readonly StoreEntry[], change: number): Promise<number> {
    let highest = 0;
    for (let start = 0; start < entries.length; start += entriesAtATime) {
      const pipeline = this.#redis.pipeline();
      for (const { name, value } of entries.slice(start, start + entriesAtATime)) {
        pipeline.call(...recordWrite(this.#prefix + name, value, change));
      }
      pipeline.call(...this.#mark.change());
      const results = (await pipeline.exec()) ?? [];
      for (const [error] of results) if (error !== null) throw error;
      const answers = results.map(([, answer]) => answer);
      this.#mark.changed(answers.pop());
      highest = Math.max(highest, highestThatStayed(answers));
    }
    return highest;
  }

  rewrite(entries: readonly StoreEntry[], revision: number): Promise<number> {
    return this.write(entries, revision);
  }

  async readRevision(): Promise<number> {
    return revisionIn(await this.#redis.get(this.#names.revision).catch(damagedText)) ?? 0;
  }

  publishRevision(revision: number): Promise<void> {
    return this.#mark.set(this.#names.revision, String(revision));
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
