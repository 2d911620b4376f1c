import type { FastifyReply } from 'fastify';
import { breakOff } from './break-off.js';
import { proxiedMethods } from './routes.js';
import { errorFailure } from './envelope.js';
import type { Failure } from './envelope.js';
import { GatewayError } from './errors.js';
import type { GatewayErrorCode } from './errors.js';
import { giveWhole } from './whole-answer.js';

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
  const headers = [...exchange.answerHeaders];
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
