import type { FastifyReply } from 'fastify';
import { abortResponse } from './lingering-close.js';
import { proxiedMethods } from '../request/routes.js';
import { GatewayError } from '../request/errors.js';
import { type GatewayErrorCode, gatewayErrors } from '../../policy/gateway-errors.js';
import { sendResponse } from './whole-response.js';
import { denialOf, type DenialCode } from '../../policy/decision-table.js';

/**
 * Protocol errors that close the connection, because client and gateway could disagree about where the next request
 * begins.
 */
const endConnection: ReadonlySet<GatewayErrorCode> = new Set<GatewayErrorCode>([
  'malformed_request',
  'invalid_host',
  'target_too_long',
  'headers_too_large',
]);

/**
 * Sends an error response. Removes headers that a failed upstream response has already set. If another response has
 * already begun, sends no error, but aborts that response.
 */
export function sendFailure(reply: FastifyReply, failure: Failure, more: Readonly<Record<string, string>> = {}): void {
  const { exchange } = reply.request;
  const { response } = exchange;
  if (response.headersSent) {
    abortResponse(response); // another response has begun and cannot be replaced
    return;
  }
  // Keep the `connection` header: if it is removed, Node sends none. Its value is the gateway's own, because hop-by-hop
  // headers of upstreams are not forwarded.
  for (const name of response.getHeaderNames()) if (name !== 'connection') response.removeHeader(name);
  exchange.ownBodyBytes = failure.body.length;
  const headers = [...exchange.found.responseHeaders];
  for (const name in failure.headers) headers.push(name, failure.headers[name] ?? '');
  for (const name in more) headers.push(name, more[name] ?? '');
  sendResponse(reply, failure.status, headers, failure.body);
}

/**
 * Sends the error response of a failed request. An unexpected exception becomes internal_error, and its message is not
 * sent.
 */
export function sendError(reply: FastifyReply, error: unknown): void {
  const { exchange } = reply.request;
  const code: GatewayErrorCode = error instanceof GatewayError ? error.code : 'internal_error';
  exchange.outcome = code;
  exchange.detail = error instanceof Error ? error.message : null;
  if (code === 'client_closed') {
    // Status 499 exists only in the log. A client that disconnects while it sends the body gets no response.
    reply.hijack();
    abortResponse(exchange.response);
    return;
  }
  if (endConnection.has(code)) reply.raw.shouldKeepAlive = false;
  const failure = errorFailure(code, error instanceof GatewayError ? error.retryAfterSeconds : null);
  const methods = exchange.found.match?.route.methods ?? proxiedMethods;
  sendFailure(reply, failure, code === 'method_not_allowed' ? { allow: methods.join(', ') } : {});
}

/** An error response that the gateway generates. */
export interface Failure {
  readonly status: number;
  /** The JSON body in ASCII: one byte per character. */
  readonly body: string;
  readonly headers: Readonly<Record<string, string>>;
}

/** Default value of Retry-After, in seconds. */
const defaultRetryAfterSeconds = 1;

/**
 * The challenge that RFC 9110 11.6.1 requires with every 401. No registered authentication scheme covers a key in a
 * header, so this scheme is the gateway's own.
 */
const challenge = 'ApiKey realm="merchant-api", header="x-api-key"';

/** Returns the response to a denied request (spec section 7). */
export function denialFailure(code: DenialCode): Failure {
  let made = denialFailures.get(code);
  if (made === undefined) {
    const { status, message } = denialOf(code);
    made = failure(status, message, status === 401 ? { 'www-authenticate': challenge } : {});
    denialFailures.set(code, made);
  }
  return made;
}

/** Cache of the responses to denials. A denial always has the same response. */
const denialFailures = new Map<DenialCode, Failure>();

/**
 * Returns the response to a request that failed for a reason other than a denial.
 * @param retryAfterSeconds Retry-After for 429 and 503; null for the default
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
