import type { ExposedKeys } from '../gateway/exposed-keys.js';
import type { Clock, TraceExport } from '../gateway/ports.js';
import type { LineSink } from '../telemetry/line-sink.js';
import type { GatewayMetrics, RequestDurations } from '../telemetry/metrics.js';
import { uniqueId } from '../telemetry/unique-id.js';
import { accessLine, refusedLine } from './access-log.js';
import type { Exchange } from './exchange.js';
import type { RefusedRequest } from './protocol-errors.js';
import { requestSpan } from './request-span.js';
import type { SharedLines } from './throttle/shared-lines.js';

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
    if (exchange.id === '') exchange.id = uniqueId(); // it was not even looked at, behind one that ended the connection
    const route = exchange.match?.route.path ?? 'none';
    metrics.countRequest({ code: exchange.outcome, status: exchange.status, route });
    metrics.observeDurations(route, durationsOf(exchange));
    if (traces !== null) {
      const span = requestSpan(exchange, environment);
      if (span !== null) traces.take(span);
    }
    const { exposedLookupId } = exchange;
    if (exposedLookupId === null) {
      this.#write(exchange);
      return;
    }
    const told = this.#findOwner(exchange, exposedLookupId).finally(() => {
      this.#lookingUp.delete(told);
      this.#write(exchange);
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

  #write(exchange: Exchange): void {
    const { sink, sharedLines, environment } = this.#options;
    // Whoever has a known key has a line for each request, whatever others send.
    if (exchange.credential === null && sharedLines?.take(exchange) === true) return;
    sink.write(accessLine(exchange, environment));
  }

  /** The refused request's caller has its answer; only the log waits for the owner of the key. */
  async #findOwner(exchange: Exchange, lookupId: string): Promise<void> {
    try {
      const answer = await this.#options.exposedKeys.find(lookupId);
      exchange.answer = answer;
      exchange.credential = answer?.credential ?? null;
      this.#options.exposedKeys.count(exchange.outcome, answer);
    } catch (error) {
      this.#options.onInternalError(error, exchange.id);
    }
  }
}

function durationsOf({
  duration,
  decisionDuration,
  lookupDuration,
  answer,
  upstreamDuration,
  match,
}: Exchange): RequestDurations {
  return {
    whole: duration,
    decision: decisionDuration,
    lookup: lookupDuration === null ? null : { source: answer?.source ?? 'unavailable', duration: lookupDuration },
    upstream: upstreamDuration === null ? null : { name: match?.route.upstream ?? 'none', duration: upstreamDuration },
  };
}
