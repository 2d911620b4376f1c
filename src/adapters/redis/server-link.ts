import type { Socket } from 'node:net';
import type { Redis } from 'ioredis';
import { MalformedRecord } from '../../gateway/records.js';
import { connectRedis } from './connection.js';
import type { RedisAddress } from './connection.js';
import { damagedText } from './damaged-text.js';
import { InvalidationListener } from './invalidation-listener.js';
import type { RecordNames } from './record-names.js';
import { StoreUnseeded } from './records-link.js';
import type { LinkEvents, RecordsLink } from './records-link.js';
import { SameServer } from './same-server.js';
import { generationOf } from './store-state.js';

/** The records on one server, or on that which the sentinels name. */
export class ServerLink implements RecordsLink {
  readonly partLost = null;
  readonly #redis: Redis;
  readonly #listening: Redis;
  readonly #listener: InvalidationListener;
  readonly #same: SameServer;
  readonly #names: RecordNames;

  constructor(address: RedisAddress, names: RecordNames, events: LinkEvents, onError: (error: Error) => void) {
    this.#names = names;
    this.#redis = connectRedis(address, onError);
    this.#listening = connectRedis(address, onError);
    this.#listener = new InvalidationListener(this.#listening, names.tracked, events);
    this.#same = new SameServer(this.#redis, this.#listening, events.onReady);
    this.#redis.on('ready', events.onReady);
  }

  get hearing(): boolean {
    return this.#listener.hearing && this.#same.holds;
  }

  get epoch(): number {
    return this.#listener.epoch;
  }

  readState(): Promise<[string | null, string | null]> {
    return Promise.all([this.#get(this.#names.meta), this.#get(this.#names.revision)]);
  }

  async catchUp(): Promise<void> {
    if (!this.#same.holds) throw new Error('changes are not heard of from the server that records are read from');
    await this.#listener.catchUp();
  }

  async read(name: string, generation: string): Promise<string | null> {
    this.#gather();
    const text = await this.#get(name);
    if (text === null) await this.#requireSeeded(generation);
    return text;
  }

  async put(name: string, text: string, lifetimeMilliseconds: number): Promise<void> {
    await this.#redis.set(name, text, 'PX', lifetimeMilliseconds);
  }

  async remove(name: string): Promise<void> {
    await this.#redis.del(name);
  }

  close(): void {
    this.#redis.disconnect();
    this.#listening.disconnect();
  }

  #get(name: string): Promise<string | null> {
    return this.#redis.get(name).catch(damagedText);
  }

  /** Has what is asked for in one turn go out together: a write for each would wake Redis as often, and cost twice the rest. */
  #gather(): void {
    const stream = this.#redis.stream as Socket | undefined; // there is none before the first connection
    if (stream === undefined || stream.writableCorked > 0) return;
    stream.cork();
    setImmediate(() => {
      stream.uncork();
    });
  }

  /** That a record is not there is an answer only if the store was seeded all the while, and with the same records. */
  async #requireSeeded(generation: string): Promise<void> {
    const meta = await this.#get(this.#names.meta);
    try {
      if (generationOf(meta) === generation) return;
    } catch (error) {
      if (!(error instanceof MalformedRecord)) throw error;
    }
    throw new StoreUnseeded();
  }
}
