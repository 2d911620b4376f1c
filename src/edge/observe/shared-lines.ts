import type { GeoLocation } from '../../gateway/ports.js';
import type { IpRanges } from '../../policy/ip-ranges.js';
import { keyFormatOf } from '../../policy/key-format.js';
import type { LineSink } from '../../telemetry/line-sink.js';
import type { BadKeyThrottle } from '../auth/bad-key-throttle.js';
import { sourceText, throttledSource } from '../../policy/client-address.js';
import type { Exchange } from '../request/exchange.js';
import { type GatewayErrorCode, gatewayErrors } from '../../policy/gateway-errors.js';
import type { RefusedRequest } from '../server/protocol-errors.js';
import { timeText } from '../../telemetry/serialise.js';
import { eventOf, locationMembers } from './access-log.js';
import type { UsageCounter } from './usage-counter.js';

/** Dependencies and settings of `SharedLines`. */
export interface SharedLinesOptions {
  /** Throttle for sources that send requests without an acceptable key; null without a throttle. */
  readonly throttle: Pick<BadKeyThrottle, 'limits' | 'count'> | null;
  readonly trustedProxies: IpRanges;
  readonly sink: Pick<LineSink, 'write' | 'problem' | 'hasOnlyReserve' | 'beforeEnd'>;
  readonly environment: string;
  /**
   * Counts the requests that each line stands for; the registry receives these counts. Null if requests are not
   * counted.
   */
  readonly usage: Pick<UsageCounter, 'countWithoutKey'> | null;
  /** Returns the time, in milliseconds since 1970. */
  readonly now: () => number;
}

/**
 * Maximum number of sources (IPv4 addresses or IPv6 /64s) with a line of their own per second. The requests of all
 * further sources share one line.
 */
const mostSources = 20;
const lineMilliseconds = 1_000;

/**
 * Failures of the gateway itself, which do not show whether the key of the request is valid. The throttle does not
 * count a request with such an outcome if its key is well-formed.
 */
const undecided: ReadonlySet<string> = new Set<GatewayErrorCode>([
  'key_store_unavailable',
  'tor_list_unavailable',
  'access_log_unavailable',
  'overloaded',
  'internal_error',
]);

const reasons = {
  throttled: 'throttled: requests without an acceptable key are logged as at most one line per second for each source',
  sources:
    'throttled: too many sources sent requests without an acceptable key, so this line counts the requests of several sources',
  reserve:
    'the disk has less than accessLog.reserveBytes free, so all requests without an acceptable key share one line per second',
};

/**
 * Combines requests without an acceptable key into shared access log lines. While the throttle limits a source (IPv4
 * address or IPv6 /64), the requests of this source share one line per second. Up to `mostSources` sources get a line
 * each; all further sources share one line. While the disk is nearly full, all sources, throttled or not, share one
 * line per second. Each request is counted in one line only.
 */
export class SharedLines {
  readonly #options: SharedLinesOptions;
  readonly #open = new Map<string, SharedRequests>();
  #others: SharedRequests | null = null;
  #othersReason: keyof typeof reasons = 'sources';
  #timer: NodeJS.Timeout | null = null;
  /**
   * `lines` counts the shared lines. The other members count the requests in these lines:
   * - `throttled`: requests in a line for a single source;
   * - `sources`: requests in the line for all sources beyond `mostSources`;
   * - `reserve`: requests that share a line because the disk is nearly full.
   */
  readonly stats = { throttled: 0, sources: 0, reserve: 0, lines: 0 };

  constructor(options: SharedLinesOptions) {
    this.#options = options;
    options.sink.beforeEnd?.(() => {
      this.flush();
    });
  }

  /**
   * Counts a finished request without a known key. @returns whether a shared line (one for several requests) covers it
   */
  take(exchange: Exchange): boolean {
    const { outcome, data, found } = exchange;
    const { remote } = data.connection;
    const { clientAddress, location } = found;
    const source = throttledSource(clientAddress ?? remote, this.#options.trustedProxies);
    if (Object.hasOwn(gatewayErrors, outcome) && outcome !== 'throttled' && !isUndecided(exchange))
      this.#options.throttle?.count(source); // `denied` of the throttle has already counted denials
    return this.#share(source, outcome, exchange.status, data.receivedAt, {
      clientIp: clientAddress?.text ?? null,
      sourceIp: remote?.text ?? null,
      location,
    });
  }

  /** Counts a request that the HTTP parser rejected. @returns whether a line shared with other requests covers it */
  takeRefused({ code, status, remote }: RefusedRequest): boolean {
    const source = throttledSource(remote, this.#options.trustedProxies);
    this.#options.throttle?.count(source);
    const from = { clientIp: null, sourceIp: remote?.text ?? null, location: null };
    return this.#share(source, code, status, this.#options.now(), from);
  }

  /** Writes all pending shared lines. */
  flush(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    for (const requests of this.#open.values()) this.#write(requests, 'throttled');
    if (this.#others !== null) this.#write(this.#others, this.#othersReason);
    this.#open.clear();
    this.#others = null;
  }

  #share(
    source: string | null,
    code: string,
    status: number,
    at: number,
    from: Pick<SharedRequests, 'clientIp' | 'sourceIp' | 'location'>,
  ): boolean {
    const { sink, throttle } = this.#options;
    const hasOnlyReserve = sink.hasOnlyReserve?.() ?? false;
    if (!hasOnlyReserve && throttle?.limits(source) !== true) return false;
    const known = hasOnlyReserve || source === null ? undefined : this.#open.get(source);
    if (known !== undefined || (!hasOnlyReserve && source !== null && this.#open.size < mostSources)) {
      const requests = known ?? begin(at, { source: source && sourceText(source), ...from });
      if (known === undefined) this.#open.set(source ?? '', requests);
      add(requests, code, status, at);
      this.stats.throttled += 1;
    } else {
      const why = hasOnlyReserve ? 'reserve' : 'sources';
      this.#others ??= begin(at, { source: null, clientIp: null, sourceIp: null, location: null });
      this.#othersReason = why;
      add(this.#others, code, status, at);
      this.stats[why] += 1;
    }
    this.#timer ??= this.#tick();
    return true;
  }

  /**
   * Starts the timer for the next flush. While the log sink has a problem, the flush is delayed, because a lost line
   * would lose all requests that it counts.
   */
  #tick(): NodeJS.Timeout {
    const timer = setTimeout(() => {
      if (this.#options.sink.problem() === null) this.flush();
      else this.#timer = this.#tick();
    }, lineMilliseconds);
    return timer.unref();
  }

  #write(requests: SharedRequests, reason: keyof typeof reasons): void {
    this.stats.lines += 1;
    const codes = [...requests.codes].map(([code, { count }]) => [code, count] as const);
    const { first, clientIp, sourceIp, location } = requests;
    this.#options.usage?.countWithoutKey(codes, first, clientIp ?? sourceIp, location);
    this.#options.sink.write(sharedLine(requests, this.#options.environment, reasons[reason]));
  }
}

/**
 * Whether the request has a well-formed key, but its outcome does not show whether the key is valid. The throttle does
 * not count such a request.
 */
function isUndecided({ outcome, data, found }: Exchange): boolean {
  // A request without a trace was pipelined and not executed. The throttle counts it, because otherwise a client with a
  // made-up key could write a thousand log lines per counted request. A connection with an accepted request is exempt.
  const isSpared = found.trace === null && data.connection.place?.hasAccepted === true;
  if (!undecided.has(outcome) && !isSpared) return false;
  const format = keyFormatOf(data.headers.apiKey);
  return format === 'live' || format === 'test';
}

function begin(at: number, from: Omit<SharedRequests, 'first' | 'last' | 'count' | 'codes'>): SharedRequests {
  return { ...from, first: at, last: at, count: 0, codes: new Map() };
}

function add(requests: SharedRequests, code: string, status: number, at: number): void {
  requests.count += 1;
  requests.first = Math.min(requests.first, at);
  requests.last = Math.max(requests.last, at);
  const counted = requests.codes.get(code);
  if (counted === undefined) requests.codes.set(code, { status, count: 1 });
  else counted.count += 1;
}

/** Number of requests with the same code in a line that several requests share. */
interface CodeCount {
  readonly status: number;
  count: number;
}

/** Requests that share an access log line. */
interface SharedRequests {
  /** An IPv4 address or an IPv6 /64; null for several sources. */
  readonly source: string | null;
  /** Client address of the first request; null if unknown or for several sources. */
  readonly clientIp: string | null;
  readonly sourceIp: string | null;
  readonly location: GeoLocation | null;
  /** Arrival of the first request, in milliseconds since 1970. */
  first: number;
  /** Arrival of the last request, in milliseconds since 1970. */
  last: number;
  count: number;
  readonly codes: Map<string, CodeCount>;
}

/**
 * Returns the access log line of requests that share a line, in the format of `accessLine`. `event.code` is the most
 * frequent code; `gateway.aggregate` holds the number of requests by code.
 * @param reason for operators: why the requests share a line
 */
function sharedLine(requests: SharedRequests, environment: string, reason: string): string {
  const { source, clientIp, sourceIp, location, first, last, count, codes } = requests;
  const byCount = [...codes].toSorted(([, one], [, other]) => other.count - one.count);
  const [code = '', { status } = { status: 0 }] = byCount[0] ?? [];
  const counts = byCount.map(([name, of]) => `"${name}":${of.count}`).join(',');
  return (
    `{"@timestamp":"${timeText(first)}","http":{"request":{},"response":{"status_code":${status}}}` +
    `,"client":{${clientIp === null ? '' : `"ip":"${clientIp}"`}${locationMembers(location)}}` +
    `,"source":{${sourceIp === null ? '' : `"ip":"${sourceIp}"`}}` +
    `,"gateway":{"environment":"${environment}","aggregate":{"count":${count},"codes":{${counts}}` +
    `${source === null ? '' : `,"source":"${source}"`}}}` +
    `,"event":{${eventOf(code)},"reason":"${reason}","start":"${timeText(first)}","end":"${timeText(last)}"}}`
  );
}
