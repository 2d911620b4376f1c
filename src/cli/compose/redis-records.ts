import { hostname } from 'node:os';
import { ulid } from 'ulid';
import type { PreloadEvents } from '../../adapters/redis/gateway/preload.js';
import { RedisRecords } from '../../adapters/redis/gateway/redis-records.js';
import type { OnMalformed } from '../../adapters/redis/seal.js';
import type { Config } from '../../config/schema.js';
import type { Logger } from '../../telemetry/logger.js';
import { version } from '../version.js';
import { readRecordSeals } from './key-secrets.js';
import { evictionLog, redisAddressOf, redisOutageLog } from './redis-address.js';
import type { RedisSelfCheck } from './redis-self-check.js';
import { systemClock } from './system-clock.js';

/** Opens the records in Redis, as a gateway that can be told apart from every other and from its own past. */
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
      log.warn({ reason: notice }, 'Redis and the registry do not agree yet');
    },
    onPolicies: evictionLog(log),
    preload: cache.preload ? preloadLog(cache.maxEntries, log) : undefined,
    whyAway: check?.problem,
    ...(check?.outageEvents() ?? redisOutageLog(log)),
  });
}

/** Tells an operator which keys an outage of Redis would refuse. */
function preloadLog(maxEntries: number, log: Logger): PreloadEvents {
  return {
    onFull: (seen) => {
      log.warn(
        { maxEntries, keys: seen },
        'not every record fits into keyStore.cache.maxEntries: an outage of Redis refuses the keys that are not held',
      );
    },
    onRefused: ({ message }) => {
      log.warn(
        { reason: message },
        'Redis does not let records be read before they are asked for; its user lacks a right: an outage refuses the keys that are not held',
      );
    },
  };
}
