import type { FastifyReply } from 'fastify';
import { proxiedMethods } from './routes.js';
import { errorFailure } from './envelope.js';
import type { Failure } from './envelope.js';
import { GatewayError } from './errors.js';
import type { GatewayErrorCode } from './errors.js';

/** Headers that the gateway has set itself by then. */
const own: ReadonlySet<string> = new Set(['allow', 'connection']);

/** Failures of the protocol: where such a request ends, and the next one begins, the two sides may see differently. */
const endConnection: ReadonlySet<GatewayErrorCode> = new Set<GatewayErrorCode>([
  'malformed_request',
  'invalid_host',
  'target_too_long',
  'headers_too_large',
]);

/** Answers with the envelope, and with nothing of what an upstream had said before it failed. */
export function sendFailure(reply: FastifyReply, failure: Failure): FastifyReply {
  reply.request.exchange.ownBodyBytes = Buffer.byteLength(failure.body);
  for (const name of Object.keys(reply.getHeaders())) if (!own.has(name)) reply.removeHeader(name);
  const { answerHeaders } = reply.request.exchange;
  return reply.code(failure.status).headers(answerHeaders).headers(failure.headers).send(failure.body);
}

/** Answers a request that failed; whatever is not foreseen is an internal error, and its text stays inside. */
export function sendError(reply: FastifyReply, error: unknown): FastifyReply {
  const { exchange } = reply.request;
  const code: GatewayErrorCode = error instanceof GatewayError ? error.code : 'internal_error';
  exchange.outcome = code;
  exchange.detail = error instanceof Error ? error.message : null;
  if (endConnection.has(code)) reply.raw.shouldKeepAlive = false;
  if (code === 'method_not_allowed') reply.header('allow', proxiedMethods.join(', '));
  return sendFailure(reply, errorFailure(code, error instanceof GatewayError ? error.retryAfterSeconds : null));
}
