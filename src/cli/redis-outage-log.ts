import type { OutageEvents } from '../adapters/redis/outage.js';
import type { Logger } from '../telemetry/logger.js';

/** Logs the beginning and the end of an outage of Redis, however many attempts fail in between. */
export function redisOutageLog(log: Logger): OutageEvents {
  return {
    onLost: (reason) => {
      log.warn({ reason: reason.message }, 'Redis is lost; it is tried again until it is found');
    },
    onFound: (lostForMilliseconds) => {
      log.info({ lostForMilliseconds }, 'Redis is found again');
    },
  };
}

/** Logs once that Redis is set to evict what must not be missing; again after it was set right. */
export function evictionLog(log: Logger): (policies: readonly string[]) => void {
  let told = '';
  return (policies) => {
    if (policies.length === 0) return; // not known yet
    const wrong = policies.filter((policy) => policy !== 'noeviction').join(', ');
    if (wrong !== '' && wrong !== told)
      log.warn(
        { maxmemoryPolicy: wrong },
        'Redis may evict records or acknowledgements: set maxmemory-policy noeviction',
      );
    told = wrong;
  };
}
