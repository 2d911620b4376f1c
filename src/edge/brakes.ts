import type { Config } from '../config/schema.js';
import type { Clock, SharedRate } from '../gateway/ports.js';
import type { IpRanges } from '../policy/ip-ranges.js';
import type { LineSink } from '../telemetry/line-sink.js';
import type { GatewayMetrics } from '../telemetry/metrics.js';
import { LoopWatch } from './auth/loop-watch.js';
import { MerchantRate } from './auth/merchant-rate.js';
import { BadKeyThrottle } from './auth/bad-key-throttle.js';
import { SharedLines } from './observe/shared-lines.js';
import type { UsageCounter } from './observe/usage-counter.js';

/** Dependencies of the limiters. */
interface BrakedParts {
  readonly sharedRate: SharedRate | null;
  readonly accessLog: LineSink;
  readonly clock: Clock;
  readonly usage: UsageCounter | null;
}

/**
 * Creates the throttle for invalid keys, the rate limit, the overload detection, and `SharedLines`, which combines
 * requests without an acceptable key into one log line. Registers the metrics of all four.
 */
export function createLimiters(config: Config, parts: BrakedParts, trustedProxies: IpRanges, metrics: GatewayMetrics) {
  const { sharedRate, accessLog: sink, clock, usage } = parts;
  const throttle = config.throttle.enabled ? new BadKeyThrottle(config.throttle) : null;
  const { environment } = config;
  const sharedLines = new SharedLines({ throttle, trustedProxies, sink, environment, usage, now: () => clock.now() });
  const { requestsPerSecond, burst } = config.rateLimit;
  const merchantRate = requestsPerSecond === null ? null : new MerchantRate({ requestsPerSecond, burst }, sharedRate);
  const loopWatch = new LoopWatch(config.limits.eventLoopDelayMilliseconds);
  metrics.gauge(
    'gateway_throttled_sources',
    'Sources that are throttled after too many requests without an acceptable key.',
    () => throttle?.throttled ?? 0,
  );
  metrics.gauge(
    'gateway_throttle_total_reached',
    '1 while key lookups are limited for all sources, because sources that are not throttled themselves have together sent throttle.totalBadKeys requests without an acceptable key. Requests without an acceptable key then share log lines.',
    () => Number(throttle?.isTotalReached ?? false),
    'max',
  );
  metrics.counterByWord(
    'gateway_throttled_lookups_refused_total',
    'Key lookups that the throttle refused, by reason: checksum (the key has a wrong checksum) or budget (the lookup quota is used up).',
    'reason',
    () => ({ ...(throttle?.refusedLookups ?? { checksum: 0, budget: 0 }) }),
  );
  metrics.counterByWord(
    'gateway_access_log_shared_requests_total',
    'Requests logged in shared access log lines, by kind of line: throttled (one source), sources (several sources) or reserve (the disk is nearly full).',
    'reason',
    () => {
      const { throttled, sources, reserve } = sharedLines.stats;
      return { throttled, sources, reserve };
    },
  );
  metrics.counter('gateway_access_log_shared_lines_total', 'Access log lines that aggregate several requests.', () => {
    return sharedLines.stats.lines;
  });
  metrics.gauge(
    'gateway_access_log_reserve_reached',
    '1 while the file system of the access log has less than accessLog.reserveBytes free.',
    () => Number(sink.hasOnlyReserve?.() ?? false),
    'max',
  );
  metrics.counterByWord(
    'gateway_rate_limit_counts_total',
    'Requests counted for rateLimit.shared, by how they were counted: together (in Redis, with all gateways) or alone (only in this process, because Redis failed).',
    'how',
    () => merchantRate?.stats ?? {},
  );
  metrics.gauge(
    'gateway_overloaded',
    '1 while requests are rejected because the event loop is delayed.',
    () => (loopWatch.problem() === null ? 0 : 1),
    'max',
  );
  return { throttle, sharedLines, merchantRate, loopWatch };
}
