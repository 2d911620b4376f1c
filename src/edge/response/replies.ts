import type { FastifyReply } from 'fastify';
import { breakOff } from './lingering-close.js';
import { proxiedMethods } from '../request/routes.js';
import { GatewayError, type GatewayErrorCode, gatewayErrors } from '../request/errors.js';
import { giveWhole } from './whole-answer.js';
import { denialOf, type DenialCode } from '../../policy/decision-table.js';

/** Failures of the protocol: where such a request ends, and the next one begins, the two sides may see differently. */
const endConnection: ReadonlySet<GatewayErrorCode> = new Set<GatewayErrorCode>([
  'malformed_request',
  'invalid_host',
  'target_too_long',
  'headers_too_large',
]);

/** Answers with the envelope, and with nothing of what an upstream had said before it failed. */
export function sendFailure(reply: FastifyReply, failure: Failure, more: Readonly<Record<string, string>> = {}): void {
  const { exchange } = reply.request;
  const { response } = exchange;
  if (response.headersSent) {
    breakOff(response); // another answer has begun, and cannot be made into this one
    return;
  }
  // Node sends no Connection header at all once one has been removed. No upstream's is among them: it is hop-by-hop.
  for (const name of response.getHeaderNames()) if (name !== 'connection') response.removeHeader(name);
  exchange.ownBodyBytes = failure.body.length;
  const headers = [...exchange.found.responseHeaders];
  for (const name in failure.headers) headers.push(name, failure.headers[name] ?? '');
  for (const name in more) headers.push(name, more[name] ?? '');
  giveWhole(reply, failure.status, headers, failure.body);
}

/** Answers a request that failed; whatever is not foreseen is an internal error, and its text stays inside. */
export function sendError(reply: FastifyReply, error: unknown): void {
  const { exchange } = reply.request;
  const code: GatewayErrorCode = error instanceof GatewayError ? error.code : 'internal_error';
  exchange.outcome = code;
  exchange.detail = error instanceof Error ? error.message : null;
  if (code === 'client_closed') {
    // The status 499 is the log's: a client that has closed its side in the middle of a body gets no response.
    reply.hijack();
    breakOff(exchange.response);
    return;
  }
  if (endConnection.has(code)) reply.raw.shouldKeepAlive = false;
  const failure = errorFailure(code, error instanceof GatewayError ? error.retryAfterSeconds : null);
  sendFailure(reply, failure, code === 'method_not_allowed' ? { allow: proxiedMethods.join(', ') } : {});
}

/** Whatever the gateway answers itself. */
export interface Failure {
  readonly status: number;
  /** The envelope, in ASCII: a character is a byte. */
  readonly body: string;
  readonly headers: Readonly<Record<string, string>>;
}

/** Seconds after which a caller may try again, where nobody knows better. */
const defaultRetryAfterSeconds = 1;

/** RFC 9110 11.6.1 asks for a challenge with every 401; there is no registered scheme for a key in a header. */
const challenge = 'ApiKey realm="merchant-api", header="x-api-key"';

/** The answer to a denied request (spec section 7). */
export function denialFailure(code: DenialCode): Failure {
  let made = denialFailures.get(code);
  if (made === undefined) {
    const { status, message } = denialOf(code);
    made = failure(status, message, status === 401 ? { 'www-authenticate': challenge } : {});
    denialFailures.set(code, made);
  }
  return made;
}

/** Each denial is always answered in the same words. */
const denialFailures = new Map<DenialCode, Failure>();

/**
 * The answer to a request that failed otherwise.
 * @param retryAfterSeconds when a caller of whom there is too much may try again
 */
export function errorFailure(code: GatewayErrorCode, retryAfterSeconds: number | null = null): Failure {
  const { status, message } = gatewayErrors[code];
  const mayTryAgain = status === 503 || status === 429;
  const headers = mayTryAgain ? { 'retry-after': String(retryAfterSeconds ?? defaultRetryAfterSeconds) } : {};
  return failure(status, message, headers);
}

function failure(status: number, message: string, headers: Readonly<Record<string, string>>): Failure {
  const body = JSON.stringify({ success: false, message, data: null });
  return {
    status,
    body,
    headers: {
      'content-type': 'application/json; charset=utf-8',
      'content-length': String(body.length),
      'cache-control': 'no-store',
      ...headers,
    },
  };
}
