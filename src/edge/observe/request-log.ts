import type { ExposedKeys } from '../../gateway/exposed-keys.js';
import type { Clock, Span, TraceExport } from '../../gateway/ports.js';
import type { LineSink } from '../../telemetry/line-sink.js';
import type { GatewayMetrics, RequestDurations } from '../../telemetry/metrics.js';
import type { MerchantCounts } from '../../telemetry/request-metrics.js';
import type { Exchange } from '../request/exchange.js';
import type { RefusedRequest } from '../server/protocol-errors.js';
import { accessLine, type KeyOwner, loggedPath, refusedLine } from './access-log.js';
import type { SharedLines } from './shared-lines.js';
import type { UsageCounter } from './usage-counter.js';

/** Dependencies of the request log. */
export interface RequestLogOptions {
  readonly environment: string;
  readonly sink: Pick<LineSink, 'write'>;
  readonly metrics: Pick<GatewayMetrics, 'observeDurations'> & {
    readonly requests: Pick<GatewayMetrics['requests'], 'add'>;
  };
  readonly exposedKeys: ExposedKeys;
  /** Counts the requests; the registry receives these counts. Null if requests are not counted. */
  readonly usage: UsageCounter | null;
  /** Counts the requests of each merchant for the metrics; null if the metrics do not distinguish merchants. */
  readonly merchants: MerchantCounts | null;
  /** Combines several requests without an acceptable key into one log line; null if each request has its own line. */
  readonly sharedLines: SharedLines | null;
  /** The exporter of traces; null if traces are not exported. */
  readonly traces: TraceExport | null;
  readonly clock: Clock;
  /** Called if the look-up of a key for a log line fails unexpectedly. */
  readonly onInternalError: (error: unknown, requestId: string) => void;
}

/**
 * Records every request exactly once in the access log and in the metrics. In the log, a request has its own line or
 * shares one with other requests.
 */
export class RequestLog {
  readonly #options: RequestLogOptions;
  readonly #lookingUp = new Set<Promise<void>>();

  constructor(options: RequestLogOptions) {
    this.#options = options;
  }

  /** Records a finished request. */
  ended(exchange: Exchange): void {
    const { metrics, traces, environment } = this.#options;
    const { found } = exchange;
    const route = found.match?.route.path ?? 'none';
    metrics.requests.add({ code: exchange.outcome, status: exchange.status, route });
    metrics.observeDurations(route, durationsOf(exchange));
    if (traces !== null) {
      const span = requestSpan(exchange, environment);
      if (span !== null) traces.take(span);
    }
    const { exposedLookupId } = found;
    if (exposedLookupId === null) {
      this.#write(exchange, found);
      return;
    }
    const logged = this.#findOwner(exchange, exposedLookupId).then((owner) => {
      this.#lookingUp.delete(logged);
      this.#write(exchange, owner);
    });
    this.#lookingUp.add(logged);
  }

  /** Records a request that the HTTP parser rejected. */
  refused(refused: RefusedRequest): void {
    const { metrics, sink, sharedLines, usage, environment, clock } = this.#options;
    metrics.requests.add({ code: refused.code, status: refused.status, route: 'none' });
    if (sharedLines?.takeRefused(refused) === true) return;
    const now = clock.now();
    usage?.countWithoutKey([[refused.code, 1]], now, refused.remote?.text ?? null);
    sink.write(refusedLine(refused, environment, now));
  }

  /** Resolves when all lines have been passed to the sink, including those that wait for a key look-up. */
  async settled(): Promise<void> {
    await Promise.all(this.#lookingUp);
    this.#options.sharedLines?.flush();
  }

  #write(exchange: Exchange, owner: KeyOwner): void {
    const { sink, sharedLines, usage, merchants, environment } = this.#options;
    // A client with a known key gets its own line for each request, even under an attack by other clients.
    if (owner.credential === null && sharedLines?.take(exchange) === true) return;
    usage?.count(exchange, owner);
    if (merchants !== null && owner.credential !== null)
      merchants.add(owner.credential.merchantId, exchange.outcome === 'accepted');
    sink.write(accessLine(exchange, owner, environment));
  }

  /**
   * Looks up the owner of a key whose request was denied before the key look-up, for example because third parties
   * could have read the key. Only the log line waits for this look-up: the response was already sent.
   */
  async #findOwner({ found, outcome }: Exchange, lookupId: string): Promise<KeyOwner> {
    try {
      const keyLookup = await this.#options.exposedKeys.find(lookupId);
      this.#options.exposedKeys.count(outcome, keyLookup);
      return { keyLookup, credential: keyLookup?.credential ?? null };
    } catch (error) {
      this.#options.onInternalError(error, found.id);
      return found;
    }
  }
}

function durationsOf({ duration, decisionDuration, upstreamDuration, found }: Exchange): RequestDurations {
  const { lookupDuration, keyLookup, match } = found;
  return {
    whole: duration,
    decision: decisionDuration,
    lookup: lookupDuration === null ? null : { source: keyLookup?.source ?? 'unavailable', duration: lookupDuration },
    upstream: upstreamDuration === null ? null : { name: match?.route.upstream ?? 'none', duration: upstreamDuration },
  };
}

/**
 * Returns the span of a finished request; null if the request was not sampled. Like the log line, the span never
 * contains a body, a query string or an API key.
 */
function requestSpan(exchange: Exchange, environment: string): Span | null {
  const { data, found, outcome, status } = exchange;
  const { trace, match, credential, clientAddress, lookupDuration } = found;
  if (trace?.taken !== true) return null;
  const { method } = data;
  const attributes: Record<string, string | number> = {
    'http.request.method': method,
    'http.response.status_code': status,
    'url.path': loggedPath(data.target),
    'gateway.request.id': found.id,
    'gateway.code': outcome,
    'gateway.environment': environment,
    'gateway.decision.duration': exchange.decisionDuration,
  };
  if (match !== null) attributes['http.route'] = match.route.path;
  if (clientAddress !== null) attributes['client.address'] = clientAddress.text;
  if (credential !== null) {
    attributes['gateway.merchant.id'] = credential.merchantId;
    attributes['gateway.key.id'] = credential.keyId;
  }
  if (lookupDuration !== null) attributes['gateway.key_lookup.duration'] = lookupDuration;
  if (exchange.upstreamDuration !== null) attributes['gateway.upstream.duration'] = exchange.upstreamDuration;
  return {
    traceId: trace.traceId,
    spanId: trace.spanId,
    parentId: trace.parentId,
    name: match === null ? method : `${method} ${match.route.path}`,
    startedAt: data.receivedAt,
    duration: exchange.duration,
    failed: status >= 500,
    attributes,
  };
}
