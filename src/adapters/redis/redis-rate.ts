import type { Cluster, Redis } from 'ioredis';
import type { Eventual } from '../../gateway/eventual.js';
import type { SharedRate, TokenTake } from '../../gateway/ports.js';
import type { Environment } from '../../policy/key-format.js';
import { connectAny } from './connection.js';
import type { RedisAddress } from './connection.js';
import { Outage } from './outage.js';
import type { OutageEvents } from './outage.js';
import { RecordNames } from './record-names.js';
import { defineTakeToken } from './take-token.js';

/** Where requests are counted together, and how many a merchant may make. */
export interface RedisRateOptions extends OutageEvents {
  readonly address: RedisAddress;
  readonly prefix: string;
  readonly environment: Environment;
  readonly requestsPerSecond: number;
  /** The most at once. */
  readonly burst: number;
  /** How long a request waits for its count. */
  readonly waitMilliseconds: number;
  /** Milliseconds by a clock that nobody sets. */
  readonly now?: () => number;
}

/** So long after a failure nobody asks; then one asks, and does not wait for the answer. */
const pauseMilliseconds = 500;
/** An outage is over when counts have gone well for so long: a part of a Cluster that is away fails some of them alone. */
const quietMilliseconds = 5_000;

/**
 * Counts the requests of merchants in Redis, for all gateways that share it. Where Redis is slow or away, or refuses, those
 * requests that are under way at that moment wait for it once, and no others do.
 */
export class RedisRate implements SharedRate {
  readonly #options: RedisRateOptions;
  readonly #names: RecordNames;
  readonly #redis: Redis | Cluster;
  readonly #outage: Outage;
  readonly #now: () => number;
  #goesWell = true;
  #failedAt = -Infinity;
  #triedAt = -Infinity;

  constructor(options: RedisRateOptions) {
    const { address, prefix, now = () => performance.now() } = options;
    this.#options = options;
    this.#names = new RecordNames(prefix);
    this.#outage = new Outage(options);
    this.#now = now;
    this.#redis = connectAny(address, (error) => {
      this.#failed(error);
    });
    defineTakeToken(this.#redis);
  }

  take(merchantId: string): Eventual<TokenTake | null> {
    if (this.#redis.status !== 'ready') return null;
    if (this.#goesWell) return this.#ask(merchantId);
    const now = this.#now();
    if (now - Math.max(this.#failedAt, this.#triedAt) < pauseMilliseconds) return null;
    this.#triedAt = now;
    void this.#ask(merchantId);
    return null;
  }

  close(): Promise<void> {
    this.#redis.disconnect();
    return Promise.resolve();
  }

  async #ask(merchantId: string): Promise<TokenTake | null> {
    const { environment, requestsPerSecond, burst, waitMilliseconds } = this.#options;
    const name = this.#names.rate(environment, merchantId);
    try {
      const asked = this.#redis.takeToken(name, requestsPerSecond, burst);
      const [taken, tokens] = await inTime(asked, waitMilliseconds);
      this.#succeeded();
      return { taken: taken === 1, tokens: Number(tokens) };
    } catch (error) {
      this.#failed(error instanceof Error ? error : new Error(String(error)));
      return null;
    }
  }

  #succeeded(): void {
    this.#goesWell = true;
    if (this.#now() - this.#failedAt >= quietMilliseconds) this.#outage.recovered();
  }

  #failed(reason: Error): void {
    this.#goesWell = false;
    this.#failedAt = this.#now();
    this.#outage.failed(reason);
  }
}

/** What is asked for, if it comes in time; what has come when the time is over is read first, however late the process is. */
function inTime<T>(asked: Promise<T>, milliseconds: number): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      setImmediate(() => {
        reject(new Error(`no answer within ${milliseconds} ms`));
      });
    }, milliseconds);
    asked.then(resolve, reject).finally(() => {
      clearTimeout(timer);
    });
  });
}
