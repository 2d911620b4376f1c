import type { ExposedKeys } from '../../gateway/exposed-keys.js';
import type { Clock, Span, TraceExport } from '../../gateway/ports.js';
import type { LineSink } from '../../telemetry/line-sink.js';
import type { GatewayMetrics, RequestDurations } from '../../telemetry/metrics.js';
import type { Exchange } from '../request/exchange.js';
import type { RefusedRequest } from '../server/protocol-errors.js';
import { accessLine, type KeyOwner, refusedLine, shown } from './access-log.js';
import type { SharedLines } from './shared-lines.js';

/** Where requests are told of when they are over. */
export interface RequestLogOptions {
  readonly environment: string;
  readonly sink: Pick<LineSink, 'write'>;
  readonly metrics: Pick<GatewayMetrics, 'countRequest' | 'observeDurations'>;
  readonly exposedKeys: ExposedKeys;
  /** Null: each request has a line of its own. */
  readonly sharedLines: SharedLines | null;
  /** Null: traces are kept nowhere. */
  readonly traces: TraceExport | null;
  readonly clock: Clock;
  /** Told of a look-up that failed in a way that nobody foresaw. */
  readonly onInternalError: (error: unknown, requestId: string) => void;
}

/** Tells of every request once: a line in the access log, or its part in a shared one, and its part in the metrics. */
export class RequestLog {
  readonly #options: RequestLogOptions;
  readonly #lookingUp = new Set<Promise<void>>();

  constructor(options: RequestLogOptions) {
    this.#options = options;
  }

  /** Tells of a request that is over. */
  ended(exchange: Exchange): void {
    const { metrics, traces, environment } = this.#options;
    const { found } = exchange;
    const route = found.match?.route.path ?? 'none';
    metrics.countRequest({ code: exchange.outcome, status: exchange.status, route });
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
    const told = this.#findOwner(exchange, exposedLookupId).then((owner) => {
      this.#lookingUp.delete(told);
      this.#write(exchange, owner);
    });
    this.#lookingUp.add(told);
  }

  /** Tells of a request that the HTTP parser refused. */
  refused(refused: RefusedRequest): void {
    const { metrics, sink, sharedLines, environment, clock } = this.#options;
    metrics.countRequest({ code: refused.code, status: refused.status, route: 'none' });
    if (sharedLines?.takeRefused(refused) !== true) sink.write(refusedLine(refused, environment, clock.now()));
  }

  /** Resolves when nothing is left to be told. */
  async settled(): Promise<void> {
    await Promise.all(this.#lookingUp);
    this.#options.sharedLines?.flush();
  }

  #write(exchange: Exchange, owner: KeyOwner): void {
    const { sink, sharedLines, environment } = this.#options;
    // Whoever has a known key has a line for each request, whatever others send.
    if (owner.credential === null && sharedLines?.take(exchange) === true) return;
    sink.write(accessLine(exchange, owner, environment));
  }

  /** The refused request's caller has its answer; only the log waits for the owner of the key. */
  async #findOwner({ found, outcome }: Exchange, lookupId: string): Promise<KeyOwner> {
    try {
      const answer = await this.#options.exposedKeys.find(lookupId);
      this.#options.exposedKeys.count(outcome, answer);
      return { answer, credential: answer?.credential ?? null };
    } catch (error) {
      this.#options.onInternalError(error, found.id);
      return found;
    }
  }
}

function durationsOf({ duration, decisionDuration, upstreamDuration, found }: Exchange): RequestDurations {
  const { lookupDuration, answer, match } = found;
  return {
    whole: duration,
    decision: decisionDuration,
    lookup: lookupDuration === null ? null : { source: answer?.source ?? 'unavailable', duration: lookupDuration },
    upstream: upstreamDuration === null ? null : { name: match?.route.upstream ?? 'none', duration: upstreamDuration },
  };
}

/** The span of a request that is over; null where it was not chosen for one. Says no more than its line in the log. */
function requestSpan(exchange: Exchange, environment: string): Span | null {
  const { data, found, outcome, status } = exchange;
  const { trace, match, credential, clientAddress, lookupDuration } = found;
  if (trace?.taken !== true) return null;
  const { method } = data;
  const attributes: Record<string, string | number> = {
    'http.request.method': method,
    'http.response.status_code': status,
    'url.path': shown(data.target.path),
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
