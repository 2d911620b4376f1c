import type { Cluster, Redis, Result } from 'ioredis';
import type { Eventual } from '../../gateway/eventual.js';
import type { SharedRate, TokenTake } from '../../gateway/ports.js';
import type { Environment } from '../../policy/key-format.js';
import { connectAny, type RedisAddress } from './connection.js';
import { Outage, type OutageEvents } from './outage.js';
import { RecordNames } from './record-names.js';

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

declare module 'ioredis' {
  interface RedisCommander<Context> {
    /** One when there was a token, else 0; and the tokens that are left, as a text. */
    takeToken(name: string, perSecond: number, size: number): Result<[taken: number, tokens: string], Context>;
  }
}

/**
 * A bucket is a text, its tokens and the microsecond of Redis' own clock at which it had them, and ends by itself when it
 * would be full: one that is not there is full. A clock that is set back, or that of another master, costs no tokens.
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

/** Gives a connection the command `takeToken`, which is done as a whole or not at all. */
function defineTakeToken(redis: Redis | Cluster): void {
  redis.defineCommand('takeToken', { numberOfKeys: 1, lua: script });
}
