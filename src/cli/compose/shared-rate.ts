import { RedisRate } from '../../adapters/redis/redis-rate.js';
import type { Config } from '../../config/schema.js';
import type { SharedRate } from '../../gateway/ports.js';
import type { Logger } from '../../telemetry/logger.js';
import { redisAddressOf } from './redis-address.js';

/** Maximum time that a request waits for the shared count; `commandTimeoutMilliseconds` may be lower. */
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
      log.warn({ reason: reason.message }, 'shared rate limit unavailable in Redis; each process counts separately');
    },
    onFound: (lostForMilliseconds) => {
      log.info({ lostForMilliseconds }, 'shared rate limit available again');
    },
  });
}
