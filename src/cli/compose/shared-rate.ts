import { RedisRate } from '../../adapters/redis/redis-rate.js';
import type { Config } from '../../config/schema.js';
import type { SharedRate } from '../../gateway/ports.js';
import type { Logger } from '../../telemetry/logger.js';
import { redisAddressOf } from './redis-address.js';

/** A request waits for its count no longer than this, nor than any command may take. */
const longestWaitMilliseconds = 50;

/**
 * Opens the count of merchants' requests that all gateways share; null where each process counts for itself, or nothing is
 * limited.
 * @throws OperatorError for a file with a secret of Redis that cannot be read
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
      log.warn({ reason: reason.message }, 'Redis does not count requests; each process counts for itself');
    },
    onFound: (lostForMilliseconds) => {
      log.info({ lostForMilliseconds }, 'requests are counted by all gateways together again');
    },
  });
}
