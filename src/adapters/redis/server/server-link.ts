import type { Socket } from 'node:net';
import type { Redis } from 'ioredis';
import { MalformedRecord } from '../../../gateway/records.js';
import { connectRedis, type RedisAddress } from '../connection.js';
import { namesOfStep, type RecordNames, scanPages } from '../record-names.js';
import { malformedText } from '../record-text.js';
import { type AcknowledgementText, type LinkEvents, type RecordsLink, StoreUnseeded } from '../records-link.js';
import { noSeals, type Seals } from '../seal.js';
import { generationOf } from '../store-state.js';
import { InvalidationListener } from './invalidation-listener.js';
import { factsOf, SameServer } from './same-server.js';
import { SentinelMajority } from './sentinel-majority.js';

/** A gateway's connection to the record store on one server, or on the master that the sentinels name. */
export class ServerLink implements RecordsLink {
  readonly #address: RedisAddress;
  readonly #onError: (error: Error) => void;
  readonly #redis: Redis;
  readonly #listening: Redis;
  readonly #listener: InvalidationListener;
  readonly #same: SameServer;
  readonly #names: RecordNames;
  readonly #seals: Seals;
  readonly #sentinels: SentinelMajority | null;
  #replicas: ReplicaWitness | null = null;
  /**
   * The epoch in which most sentinels named another server as the master; null if they did not. Each reconnect changes
   * the epoch.
   */
  #misplacedEpoch: number | null = null;

  /** @param seals verifies the seal (HMAC) of the meta record, which describes the store */
  constructor(
    address: RedisAddress,
    names: RecordNames,
    events: LinkEvents,
    onError: (error: Error) => void,
    seals = noSeals,
  ) {
    [this.#names, this.#seals] = [names, seals];
    [this.#address, this.#onError] = [address, onError];
    this.#sentinels = address.sentinels === null ? null : new SentinelMajority(address);
    this.#redis = connectRedis(address, onError);
    this.#listening = connectRedis(address, onError);
    this.#listener = new InvalidationListener(this.#listening, names.tracked, events);
    this.#same = new SameServer(this.#redis, this.#listening, events.onReady);
    this.#redis.on('ready', events.onReady);
  }

  get connected(): boolean {
    return this.#listener.connected && this.#same.holds;
  }

  get epoch(): number {
    return this.#listener.epoch + this.#same.epoch;
  }

  get servers(): readonly (string | null)[] | null {
    const { facts } = this.#same;
    return facts && [facts.runId];
  }

  get policies(): readonly string[] {
    const policy = this.#same.facts?.policy ?? null;
    return policy === null ? [] : [policy];
  }

  get partLost(): string | null {
    return this.#misplacedEpoch === this.epoch ? 'most sentinels name another server as the master' : null;
  }

  /**
   * Reads without MULTI, because Redis refuses MULTI when its memory is full. Reads the meta record before the
   * revision. In the opposite order, the result could combine a new generation (history of changes), which the meta
   * record names, with a revision of the earlier generation.
   */
  readState(): Promise<[string | null, string | null]> {
    return Promise.all([this.#get(this.#names.meta), this.#get(this.#names.revision)]);
  }

  /** Does nothing: a single server has all changes up to its revision. */
  checkParts(): Promise<void> {
    return Promise.resolve();
  }

  async catchUp(): Promise<void> {
    if (!this.#same.holds)
      throw new Error(
        'the two connections to Redis reach different servers: use an address that always leads to the same server',
      );
    await this.#listener.catchUp();
  }

  async write({ name, text, lifetimeMilliseconds }: AcknowledgementText): Promise<void> {
    await this.#redis.set(name, text, 'PX', lifetimeMilliseconds);
  }

  async acknowledge(acknowledgement: AcknowledgementText, grantName: string): Promise<string | null> {
    const [, grant] = await Promise.all([this.write(acknowledgement), this.#get(grantName)]);
    return grant;
  }

  /**
   * Returns which servers must prove that no other server has taken over: `none` without replicas and sentinels,
   * otherwise `others`. Even without sentinels, an operator could promote any replica that the registry has seen.
   */
  witness(replicas: number): 'none' | 'others' {
    return this.#sentinels === null && this.#expected(replicas) === 0 ? 'none' : 'others';
  }

  async confirm(acknowledgement: AcknowledgementText, replicas: number): Promise<boolean> {
    if (this.#sentinels !== null) return this.#isNamed(this.#sentinels);
    this.#replicas ??= new ReplicaWitness(this.#address, this.#onError);
    return this.#replicas.confirms(acknowledgement, this.#expected(replicas), this.#same.facts?.runId ?? null);
  }

  async followSentinels(): Promise<void> {
    if (this.#sentinels !== null) await this.#isNamed(this.#sentinels);
  }

  async read(name: string, generation: string): Promise<string | null> {
    this.#batchWrites();
    const text = await this.#get(name);
    if (text === null) await this.#requireSeeded(generation);
    return text;
  }

  receiveNotices(): Promise<void> {
    return this.#listener.catchUp();
  }

  text(name: string): Promise<string | null> {
    return this.#get(name);
  }

  names(prefix: string): AsyncGenerator<readonly string[]> {
    return scanPages(this.#redis, prefix, namesOfStep);
  }

  readSome(names: readonly string[]): Promise<(string | null)[]> {
    return this.#redis.mget(...names);
  }

  async remove(name: string): Promise<void> {
    await this.#redis.del(name);
  }

  close(): void {
    this.#redis.disconnect();
    this.#listening.disconnect();
    this.#sentinels?.close();
    this.#replicas?.close();
  }

  /**
   * Returns how many replicas must confirm that this server is still their master. A replica that does not confirm this
   * may have been promoted. The configured number takes precedence, because it also covers replicas that INFO hides or
   * that are gone.
   */
  #expected(replicas: number): number {
    return this.#address.replicas ?? replicas;
  }

  /** Whether most sentinels name this server as the master. If they name another server, reconnects. */
  async #isNamed(sentinels: SentinelMajority): Promise<boolean> {
    const { epoch } = this;
    const verdict = await sentinels.judge(this.#redis);
    if (this.epoch !== epoch) return false;
    this.#misplacedEpoch = verdict === 'another' ? epoch : null;
    if (verdict === 'another' && sentinels.reconnect([this.#redis, this.#listening]))
      this.#onError(new Error('most sentinels name another server as the master; reconnecting to it'));
    return verdict === 'this';
  }

  #get(name: string): Promise<string | null> {
    return this.#redis.get(name).catch(malformedText);
  }

  /**
   * Sends all commands of one event-loop turn in one write to the socket. With one write per command, Redis would wake
   * for each command, and a wake-up costs twice as much as the rest of a read.
   */
  #batchWrites(): void {
    const stream = this.#redis.stream as Socket | undefined; // undefined before the first connection
    if (stream === undefined || stream.writableCorked > 0) return;
    stream.cork();
    setImmediate(() => {
      stream.uncork();
    });
  }

  /**
   * Checks that the store still has the same generation (unbroken history of changes). After a flush or a rebuild of
   * the store, a record that the store lacks may still exist in the registry's database. So a missing record proves
   * nothing.
   * @throws StoreUnseeded if the store names another generation, or does not name one
   */
  async #requireSeeded(generation: string): Promise<void> {
    const meta = await this.#get(this.#names.meta);
    try {
      const check = (text: string): void => {
        this.#seals.require(this.#names.meta, text);
      };
      if (generationOf(meta, check) === generation) return;
    } catch (error) {
      if (!(error instanceof MalformedRecord)) throw error;
    }
    throw new StoreUnseeded();
  }
}

/**
 * Proves, without Sentinel, that no replica has been promoted. A replica that receives a write from the server still
 * follows that server, so the command WAIT must count every replica. WAIT needs its own connection, because it blocks
 * later commands and counts only the writes of that connection.
 */
class ReplicaWitness {
  readonly #redis: Redis;
  readonly #waitMilliseconds: number;
  #runId: string | null = null;

  constructor(address: RedisAddress, onError: (error: Error) => void) {
    this.#waitMilliseconds = Math.ceil(address.commandTimeoutMilliseconds / 2);
    this.#redis = connectRedis(address, onError);
    this.#redis.on('close', () => (this.#runId = null));
    this.#redis.on('ready', () => {
      void this.#identify();
    });
  }

  /**
   * Writes this gateway's acknowledgement of changes on the server with this run id. Returns whether the given number
   * of replicas received the write. Never rejects.
   */
  async confirms({ name, text, lifetimeMilliseconds }: AcknowledgementText, replicas: number, runId: string | null) {
    // If the run id is unknown, call INFO again: an operator may have granted the right to call INFO meanwhile.
    if (this.#runId === null && this.#redis.status === 'ready') await this.#identify();
    if (runId === null || this.#runId !== runId) return false;
    try {
      const results = await this.#redis
        .pipeline()
        .set(name, text, 'PX', lifetimeMilliseconds)
        .wait(replicas, this.#waitMilliseconds)
        .exec();
      const [written, waited] = results ?? [];
      return written?.[0] === null && waited?.[0] === null && Number(waited[1]) >= replicas;
    } catch {
      return false;
    }
  }

  close(): void {
    this.#redis.disconnect();
  }

  async #identify(): Promise<void> {
    const { stream } = this.#redis;
    try {
      const { runId } = await factsOf(this.#redis);
      if (this.#redis.stream === stream && this.#redis.status === 'ready') this.#runId = runId;
    } catch {
      stream.destroy(); // INFO failed: reconnect, then send INFO again
    }
  }
}
