import { hostname } from 'node:os';
import { ulid } from 'ulid';
import type { PreloadEvents } from '../../adapters/redis/gateway/preload.js';
import { RedisRecords } from '../../adapters/redis/gateway/redis-records.js';
import { RedisRate } from '../../adapters/redis/redis-rate.js';
import type { OnMalformed } from '../../adapters/redis/seal.js';
import type { Config } from '../../config/schema.js';
import type { SharedRate } from '../../gateway/ports.js';
import type { Logger } from '../../telemetry/logger.js';
import { version } from '../version.js';
import { readRecordSeals } from './secrets.js';
import { evictionLog, redisAddressOf, redisOutageLog } from './redis-address.js';
import type { RedisSelfCheck } from './redis-self-check.js';
import { systemClock } from './system-clock.js';

/** Opens the records in Redis. Generates an instance id for this gateway process, so that each start has a new one. */
export async function openRedisRecords(
  config: Config,
  log: Logger,
  onMalformed: OnMalformed,
  check: RedisSelfCheck | null,
): Promise<RedisRecords> {
  const { redis, cache } = config.keyStore;
  return new RedisRecords({
    address: await redisAddressOf(redis),
    prefix: redis.prefix,
    cache: {
      maxEntries: cache.maxEntries,
      maxAgeMilliseconds: cache.maxAgeSeconds * 1000,
      unknownMaxEntries: cache.unknownMaxEntries,
      unknownMaxAgeMilliseconds: cache.unknownMaxAgeSeconds * 1000,
      maxStaleMilliseconds: cache.maxStaleSeconds * 1000,
    },
    identity: {
      instanceId: ulid(),
      environment: config.environment,
      host: hostname(),
      version,
      startedAt: new Date(systemClock.now()).toISOString(),
    },
    clock: systemClock,
    seals: await readRecordSeals(config.keys.recordSecretFile),
    onMalformed,
    onNotice: (notice) => {
      log.warn(
        { reason: notice },
        'this gateway or its Redis server lacks a confirmation by the registry; see the reason',
      );
    },
    onPolicies: evictionLog(log),
    preload: cache.preload ? preloadLog(cache.maxEntries, log) : undefined,
    whyAway: check?.problem,
    ...(check?.outageEvents() ?? redisOutageLog(log)),
  });
}

/**
 * Returns callbacks that warn if not all records can be preloaded into the cache. During a Redis outage, requests
 * with keys that are not cached would get 503.
 */
function preloadLog(maxEntries: number, log: Logger): PreloadEvents {
  return {
    onFull: (seen) => {
      log.warn(
        { maxEntries, keys: seen },
        'not all records fit into keyStore.cache.maxEntries: during a Redis outage, requests with keys that are not cached get 503',
      );
    },
    onRefused: ({ message }) => {
      log.warn(
        { reason: message },
        'the Redis user lacks a permission to preload records: during a Redis outage, requests with keys that are not cached get 503',
      );
    },
  };
}

/**
 * Maximum time that a request waits for Redis to reply about the shared rate limit. A lower
 * `commandTimeoutMilliseconds` takes precedence.
 */
const longestWaitMilliseconds = 50;

/**
 * Opens the rate limiter that all gateways share in Redis. Null if there is no limit, or if each process counts
 * separately.
 * @throws OperatorError for a Redis secret file that cannot be read
 */
export async function openSharedRate(
  { environment, keyStore: { redis }, rateLimit: { requestsPerSecond, burst, shared } }: Config,
  log: Logger,
): Promise<SharedRate | null> {
  if (!shared || requestsPerSecond === null) return null;
  return new RedisRate({
    address: await redisAddressOf(redis),
    prefix: redis.prefix,
    environment,
    requestsPerSecond,
    burst,
    waitMilliseconds: Math.min(longestWaitMilliseconds, redis.commandTimeoutMilliseconds),
    onLost: (reason) => {
      log.warn(
        { reason: reason.message },
        'the shared rate limit in Redis is unavailable; each gateway process counts separately',
      );
    },
    onFound: (lostForMilliseconds) => {
      log.info({ lostForMilliseconds }, 'the shared rate limit in Redis is available again');
    },
  });
}
