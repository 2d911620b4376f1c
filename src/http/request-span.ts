import type { Span } from '../gateway/ports.js';
import { shown } from './access-log.js';
import type { Exchange } from './exchange.js';

/** The span of a request that is over; null where it was not chosen for one. Says no more than its line in the log. */
export function requestSpan(exchange: Exchange, environment: string): Span | null {
  const { trace, request, match, credential, outcome, status } = exchange;
  if (trace?.taken !== true) return null;
  const method = request.method ?? '';
  const attributes: Record<string, string | number> = {
    'http.request.method': method,
    'http.response.status_code': status,
    'url.path': shown(exchange.target.path),
    'gateway.request.id': exchange.id,
    'gateway.code': outcome,
    'gateway.environment': environment,
    'gateway.decision.duration': exchange.decisionDuration,
  };
  if (match !== null) attributes['http.route'] = match.route.path;
  if (exchange.clientAddress !== null) attributes['client.address'] = exchange.clientAddress.text;
  if (credential !== null) {
    attributes['gateway.merchant.id'] = credential.merchantId;
    attributes['gateway.key.id'] = credential.keyId;
  }
  if (exchange.lookupDuration !== null) attributes['gateway.key_lookup.duration'] = exchange.lookupDuration;
  if (exchange.upstreamDuration !== null) attributes['gateway.upstream.duration'] = exchange.upstreamDuration;
  return {
    traceId: trace.traceId,
    spanId: trace.spanId,
    parentId: trace.parentId,
    name: match === null ? method : `${method} ${match.route.path}`,
    startedAt: exchange.receivedAt,
    duration: exchange.duration,
    failed: status >= 500,
    attributes,
  };
}
