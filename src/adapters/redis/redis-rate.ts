import type { Cluster, Redis, Result } from 'ioredis';
import type { Eventual } from '../../gateway/eventual.js';
import type { SharedRate, TokenTake } from '../../gateway/ports.js';
import type { Environment } from '../../policy/key-format.js';
import { connectAny, type RedisAddress } from './connection.js';
import { Outage, type OutageEvents } from './outage.js';
import { RecordNames } from './record-names.js';

/** Options of the shared rate limit per merchant. */
export interface RedisRateOptions extends OutageEvents {
  readonly address: RedisAddress;
  readonly prefix: string;
  readonly environment: Environment;
  readonly requestsPerSecond: number;
  /** Maximum number of requests in a burst. */
  readonly burst: number;
  /** How long a request waits for a reply of Redis. */
  readonly waitMilliseconds: number;
  /** A monotonic clock, in milliseconds. */
  readonly now?: () => number;
}

/**
 * The pause after a failure, during which no command is sent. After the pause, one request sends a command as a probe,
 * but does not wait for the reply.
 */
const pauseMilliseconds = 500;
/**
 * An outage ends once no command has failed for this long. One success is not enough: if one master of a Cluster is
 * down, only some commands fail.
 */
const quietMilliseconds = 5_000;

/**
 * Counts the requests of each merchant in Redis, so that all gateways share one limit. After a failure or timeout, new
 * requests do not wait for Redis, so only the requests that were already waiting are delayed.
 */
export class RedisRate implements SharedRate {
  readonly #options: RedisRateOptions;
  readonly #names: RecordNames;
  readonly #redis: Redis | Cluster;
  readonly #outage: Outage;
  readonly #now: () => number;
  #isHealthy = true;
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
    if (this.#isHealthy) return this.#takeToken(merchantId);
    const now = this.#now();
    if (now - Math.max(this.#failedAt, this.#triedAt) < pauseMilliseconds) return null;
    this.#triedAt = now;
    void this.#takeToken(merchantId);
    return null;
  }

  close(): Promise<void> {
    this.#redis.disconnect();
    return Promise.resolve();
  }

  async #takeToken(merchantId: string): Promise<TokenTake | null> {
    const { environment, requestsPerSecond, burst, waitMilliseconds } = this.#options;
    const name = this.#names.rate(environment, merchantId);
    try {
      const asked = this.#redis.takeToken(name, requestsPerSecond, burst);
      const [taken, tokens] = await withTimeout(asked, waitMilliseconds);
      this.#succeeded();
      return { taken: taken === 1, tokens: Number(tokens) };
    } catch (error) {
      this.#failed(error instanceof Error ? error : new Error(String(error)));
      return null;
    }
  }

  #succeeded(): void {
    this.#isHealthy = true;
    if (this.#now() - this.#failedAt >= quietMilliseconds) this.#outage.recovered();
  }

  #failed(reason: Error): void {
    this.#isHealthy = false;
    this.#failedAt = this.#now();
    this.#outage.failed(reason);
  }
}

/**
 * Rejects after a timeout. `setImmediate` lets Node first read a reply that has already arrived, for example after a
 * stall of the process.
 */
function withTimeout<T>(asked: Promise<T>, milliseconds: number): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      setImmediate(() => {
        reject(new Error(`no reply within ${milliseconds} ms`));
      });
    }, milliseconds);
    asked.then(resolve, reject).finally(() => {
      clearTimeout(timer);
    });
  });
}

declare module 'ioredis' {
  interface RedisCommander<Context> {
    /** Returns whether a token was taken (1 or 0), and the remaining tokens as a string. */
    takeToken(name: string, perSecond: number, size: number): Result<[taken: number, tokens: string], Context>;
  }
}

/**
 * Lua: a token bucket. The value stores the number of tokens, and when they were counted, in microseconds of the Redis
 * clock. The key expires when the bucket would be full, so a missing key means a full bucket. If the Redis clock goes
 * back, for example after a failover to another master, no tokens are lost.
 */
const script = `
local perSecond, size = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local tokens, filledAt = string.match(redis.call('GET', KEYS[1]) or '', '^(%S+) (%d+)$')
local elapsed = math.max(0, now - (tonumber(filledAt) or now))
tokens = math.min(size, (tonumber(tokens) or size) + elapsed * perSecond / 1000000)
local taken = tokens >= 1 and 1 or 0
tokens = tokens - taken
local untilFull = math.ceil((size - tokens) * 1000 / perSecond)
redis.call('SET', KEYS[1], string.format('%.17g %.0f', tokens, now), 'PX', untilFull)
return { taken, tostring(tokens) }
`;

/** Defines the Redis command `takeToken`, a script that runs atomically. */
function defineTakeToken(redis: Redis | Cluster): void {
  redis.defineCommand('takeToken', { numberOfKeys: 1, lua: script });
}
