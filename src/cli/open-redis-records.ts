import { hostname } from 'node:os';
import { ulid } from 'ulid';
import { RedisRecords } from '../adapters/redis/redis-records.js';
import type { Config } from '../config/schema.js';
import type { Logger } from '../telemetry/logger.js';
import { redisAddressOf } from './redis-address.js';
import { evictionLog, redisOutageLog } from './redis-outage-log.js';
import { systemClock } from './system-clock.js';
import { version } from './version.js';

/** Opens the records in Redis, as a gateway that can be told apart from every other and from its own past. */
export async function openRedisRecords(
  config: Config,
  log: Logger,
  onMalformed: (storeKey: string, problem: string) => void,
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
    onMalformed,
    onNotice: (notice) => {
      log.warn({ reason: notice }, 'Redis and the registry do not agree yet');
    },
    onPolicies: evictionLog(log),
    ...redisOutageLog(log),
  });
}
