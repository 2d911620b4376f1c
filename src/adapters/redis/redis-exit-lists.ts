import { randomBytes } from 'node:crypto';
import type { Cluster, Redis } from 'ioredis';
import type { FetchClaim, SharedExitLists } from '../tor/source-lists.js';
import { connectAny } from './connection.js';
import type { RedisAddress } from './connection.js';
import { RecordNames } from './record-names.js';
import { untilReady } from './until-ready.js';

/** How long the lock lasts without a renewal. Only the gateway that has the lock downloads the lists. */
const lockMilliseconds = 60_000;
const renewMilliseconds = 15_000;
/** A long timeout, because a whole list is read or written at once, and no request waits for it. */
const commandTimeoutMilliseconds = 5_000;

/** Lua: extends the lock if this process still has it. After a long pause, another process may have the lock. */
const renewScript = "return redis.call('GET',KEYS[1])==ARGV[1] and redis.call('PEXPIRE',KEYS[1],ARGV[2]) or 0";
/** Lua: deletes the lock if this process still has it. */
const releaseScript = "return redis.call('GET',KEYS[1])==ARGV[1] and redis.call('DEL',KEYS[1]) or 0";

/** Stores in Redis the Tor exit list, and the lock of the one gateway that downloads the list for all gateways. */
export class RedisExitLists implements SharedExitLists {
  readonly #redis: Redis | Cluster;
  readonly #names: RecordNames;

  /** @param onConnectionError called for each failure of the connection */
  constructor(address: RedisAddress, prefix: string, onConnectionError: (error: Error) => void) {
    this.#redis = connectAny({ ...address, commandTimeoutMilliseconds }, onConnectionError);
    this.#names = new RecordNames(prefix);
  }

  async read(): Promise<string | null> {
    await this.#connected();
    return this.#redis.get(this.#names.torExits);
  }

  async claim(): Promise<FetchClaim | null> {
    await this.#connected();
    const token = randomBytes(16).toString('hex');
    const lock = this.#names.torExitsLock;
    if ((await this.#redis.set(lock, token, 'PX', lockMilliseconds, 'NX')) === null) return null;
    const renew = async (): Promise<boolean> =>
      (await this.#redis.eval(renewScript, 1, lock, token, lockMilliseconds)) === 1;
    const renewing = setInterval(() => {
      renew().catch(() => undefined); // ignore a failure: `publish` renews the lock again
    }, renewMilliseconds).unref();
    return {
      publish: async (record) => {
        if (!(await renew())) return false;
        await this.#redis.set(this.#names.torExits, record);
        return true;
      },
      release: async () => {
        clearInterval(renewing);
        // If this fails, the lock expires by itself.
        await this.#redis.eval(releaseScript, 1, lock, token).catch(() => undefined);
      },
    };
  }

  close(): Promise<void> {
    this.#redis.disconnect();
    return Promise.resolve();
  }

  /** Waits at start until the connection is ready, because every earlier command would be rejected. */
  async #connected(): Promise<void> {
    if (this.#redis.status !== 'connecting' && this.#redis.status !== 'connect') return;
    await untilReady(this.#redis, commandTimeoutMilliseconds);
  }
}
