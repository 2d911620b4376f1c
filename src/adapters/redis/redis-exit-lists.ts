import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import type { Cluster, Redis } from 'ioredis';
import type { FetchClaim, SharedExitLists } from '../tor/source-lists.js';
import { connectAny } from './connection.js';
import type { RedisAddress } from './connection.js';
import { RecordNames } from './record-names.js';

/** A claim ends so long after its process was last heard of. */
const claimMilliseconds = 60_000;
const renewMilliseconds = 15_000;
/** A list is read and written as a whole, and nobody's request waits for it. */
const commandTimeoutMilliseconds = 5_000;
const readyMilliseconds = 1_000;

/** Each only where the claim is still ours: after a long pause it may be another process's. */
const renewScript = "return redis.call('GET',KEYS[1])==ARGV[1] and redis.call('PEXPIRE',KEYS[1],ARGV[2]) or 0";
const releaseScript = "return redis.call('GET',KEYS[1])==ARGV[1] and redis.call('DEL',KEYS[1]) or 0";

/** The list of Tor exits in Redis, and the lock of the gateway that fetches it for all. */
export class RedisExitLists implements SharedExitLists {
  readonly #redis: Redis | Cluster;
  readonly #names: RecordNames;

  /** @param onConnectionError told of each failure of the connection */
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
    if ((await this.#redis.set(lock, token, 'PX', claimMilliseconds, 'NX')) === null) return null;
    const renew = async (): Promise<boolean> =>
      (await this.#redis.eval(renewScript, 1, lock, token, claimMilliseconds)) === 1;
    const renewing = setInterval(() => {
      renew().catch(() => undefined); // publishing asks again
    }, renewMilliseconds).unref();
    return {
      publish: async (record) => {
        if (!(await renew())) return false;
        await this.#redis.set(this.#names.torExits, record);
        return true;
      },
      release: async () => {
        clearInterval(renewing);
        // Where it cannot be released now, it ends by itself.
        await this.#redis.eval(releaseScript, 1, lock, token).catch(() => undefined);
      },
    };
  }

  close(): Promise<void> {
    this.#redis.disconnect();
    return Promise.resolve();
  }

  /** At a start the connection is still being made, and a question would be refused at once. */
  async #connected(): Promise<void> {
    if (this.#redis.status !== 'connecting' && this.#redis.status !== 'connect') return;
    await once(this.#redis, 'ready', { signal: AbortSignal.timeout(readyMilliseconds) });
  }
}
