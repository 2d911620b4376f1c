import type { Config } from '../config/schema.js';
import type { SharedRate } from '../gateway/ports.js';
import type { GatewayMetrics } from '../telemetry/metrics.js';
import { BadKeyThrottle } from './bad-key-throttle.js';
import { LoopWatch } from './loop-watch.js';
import { MerchantRate } from './merchant-rate.js';

/** Opens what slows down those who ask too much, and shows it among the metrics. */
export function openBrakes(config: Config, sharedRate: SharedRate | null, metrics: GatewayMetrics) {
  const throttle = config.throttle.enabled ? new BadKeyThrottle(config.throttle) : null;
  const { requestsPerSecond, burst } = config.rateLimit;
  const merchantRate = requestsPerSecond === null ? null : new MerchantRate({ requestsPerSecond, burst }, sharedRate);
  const loopWatch = new LoopWatch(config.limits.eventLoopDelayMilliseconds);
  metrics.gauge('gateway_throttled_sources', 'Sources that are throttled after many bad keys.', () =>
    throttle === null ? 0 : throttle.throttled,
  );
  metrics.counterByWord(
    'gateway_rate_limit_counts_total',
    'Requests that were counted for rateLimit.shared: together with all gateways, or alone because Redis did not count.',
    'how',
    () => merchantRate?.figures ?? {},
  );
  metrics.gauge(
    'gateway_overloaded',
    '1 while requests are refused because the event loop is late.',
    () => (loopWatch.problem() === null ? 0 : 1),
    'max',
  );
  return { throttle, merchantRate, loopWatch };
}
