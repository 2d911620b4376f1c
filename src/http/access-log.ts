import type { Whereabouts } from '../gateway/ports.js';
import { maskKeys } from '../telemetry/mask-keys.js';
import { cut } from '../telemetry/serialise.js';
import { uniqueId } from '../telemetry/unique-id.js';
import type { Exchange } from './exchange.js';
import type { RefusedRequest } from './protocol-errors.js';

/**
 * The access log's line of a request that is over, in ECS field names. Never a body, a query or a key. `event` is its
 * last member, behind which the chain's number and hash go.
 */
export function accessLine(exchange: Exchange, environment: string): object {
  const { request, connection, facts, credential, answer, match, outcome, trace } = exchange;
  return {
    '@timestamp': new Date(exchange.receivedAt).toISOString(),
    trace: trace === null ? undefined : { id: trace.traceId },
    http: {
      request: {
        id: exchange.id,
        method: request.method,
        body: exchange.forwarded ? { bytes: exchange.requestBodyBytes } : undefined,
      },
      response: { status_code: exchange.status, body: { bytes: exchange.responseBodyBytes } },
    },
    url: { path: shown(exchange.target.path) },
    client: { ip: facts?.clientAddress.text, ...placeOf(exchange.whereabouts) },
    source: { ip: connection.remote?.text },
    tls: connection.tls ?? undefined,
    organization: credential === null ? undefined : { id: credential.merchantId },
    gateway: {
      key: keyOf(exchange),
      environment,
      tor_list: outcome === 'tor_blocked' ? digestOf(exchange.torListDigest) : undefined,
      record: answer === null ? undefined : { source: answer.source, age: answer.ageMilliseconds },
      route: match?.route.path,
      upstream: exchange.forwarded ? { name: match?.route.upstream, duration: exchange.upstreamDuration } : undefined,
    },
    user_agent: { original: shown(exchange.headers.userAgent[0] ?? '') },
    event: {
      ...eventOf(outcome),
      ...(exchange.detail === null ? {} : { reason: shown(exchange.detail) }),
      duration: Math.round(exchange.duration * 1_000_000),
    },
  };
}

/** Where the client address is, as far as it is known. */
function placeOf(whereabouts: Whereabouts | null): object {
  const { countryIsoCode = null, asNumber = null } = whereabouts ?? {};
  return {
    geo: countryIsoCode === null ? undefined : { country_iso_code: countryIsoCode },
    as: asNumber === null ? undefined : { number: asNumber },
  };
}

function digestOf(digest: string | null): object | undefined {
  return digest === null ? undefined : { digest };
}

/** The line of a request that the HTTP parser refused. */
export function refusedLine(refused: RefusedRequest, environment: string, at: number): object {
  return {
    '@timestamp': new Date(at).toISOString(),
    http: { request: { id: refused.id }, response: { status_code: refused.status } },
    source: { ip: refused.remoteAddress },
    gateway: { environment },
    event: { ...eventOf(refused.code), reason: shown(refused.detail), duration: 0 },
  };
}

function keyOf({ credential, keyFingerprint }: Exchange): object | undefined {
  if (credential === null && keyFingerprint === null) return undefined;
  return { id: credential?.keyId, fingerprint: keyFingerprint ?? undefined };
}

function eventOf(code: string): object {
  const accepted = code === 'accepted';
  return {
    id: uniqueId(),
    dataset: 'gateway.access',
    kind: 'event',
    category: ['web', 'authentication'],
    type: ['access', accepted ? 'allowed' : 'denied'],
    action: 'api-request',
    outcome: accepted ? 'success' : 'failure',
    code,
  };
}

/** What a caller sent, as it may stand in a log or a trace: callers put keys where they do not belong. */
export function shown(value: string): string {
  return cut(maskKeys(value));
}
