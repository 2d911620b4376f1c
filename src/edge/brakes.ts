import type { Config } from '../config/schema.js';
import type { Clock, SharedRate } from '../gateway/ports.js';
import type { IpRanges } from '../policy/ip-ranges.js';
import type { LineSink } from '../telemetry/line-sink.js';
import type { GatewayMetrics } from '../telemetry/metrics.js';
import { LoopWatch } from './auth/loop-watch.js';
import { MerchantRate } from './auth/merchant-rate.js';
import { BadKeyThrottle } from './auth/bad-key-throttle.js';
import { SharedLines } from './observe/shared-lines.js';

/** What the brakes act upon. */
interface BrakedParts {
  readonly sharedRate: SharedRate | null;
  readonly accessLog: LineSink;
  readonly clock: Clock;
}

/** Opens what slows down those who ask too much, and shows it among the metrics. */
export function openBrakes(config: Config, parts: BrakedParts, trustedProxies: IpRanges, metrics: GatewayMetrics) {
  const { sharedRate, accessLog: sink, clock } = parts;
  const throttle = config.throttle.enabled ? new BadKeyThrottle(config.throttle) : null;
  const { environment } = config;
  const sharedLines = new SharedLines({ throttle, trustedProxies, sink, environment, now: () => clock.now() });
  const { requestsPerSecond, burst } = config.rateLimit;
  const merchantRate = requestsPerSecond === null ? null : new MerchantRate({ requestsPerSecond, burst }, sharedRate);
  const loopWatch = new LoopWatch(config.limits.eventLoopDelayMilliseconds);
  metrics.gauge(
    'gateway_throttled_sources',
    'Sources that are throttled after many requests without an acceptable key.',
    () => throttle?.throttled ?? 0,
  );
  metrics.gauge(
    'gateway_throttle_total_reached',
    '1 while unthrottled sources together have sent so many requests without an acceptable key that all of them share log lines and look-ups.',
    () => Number(throttle?.isTotalReached ?? false),
    'max',
  );
  metrics.counterByWord(
    'gateway_throttled_lookups_refused_total',
    'Keys of throttled sources, not known to exist, that were not looked up: their checksum is wrong, or the budget was used up.',
    'reason',
    () => ({ ...(throttle?.refusedLookups ?? { checksum: 0, budget: 0 }) }),
  );
  metrics.counterByWord(
    'gateway_access_log_shared_requests_total',
    'Requests without an acceptable key that share a line: of a throttled source, of further sources, or because only the reserve is left.',
    'reason',
    () => {
      const { throttled, sources, reserve } = sharedLines.figures;
      return { throttled, sources, reserve };
    },
  );
  metrics.counter('gateway_access_log_shared_lines_total', 'Lines that several requests share.', () => {
    return sharedLines.figures.lines;
  });
  metrics.gauge(
    'gateway_access_log_reserve_reached',
    '1 while the file system of the access log has less than accessLog.reserveBytes of room.',
    () => Number(sink.hasOnlyReserve?.() ?? false),
    'max',
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
  return { throttle, sharedLines, merchantRate, loopWatch };
}
