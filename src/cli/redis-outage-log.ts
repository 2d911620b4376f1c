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
