import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify';
import { OperatorError } from '../config/operator-error.js';
import { Refusal } from './refusal.js';

/** Logger for internal errors, such as a pino logger. */
export interface Logger {
  error(details: object, message: string): void;
}

/** Client messages for errors of Fastify itself, by status. Fastify's own messages are written for programmers. */
const messages: Readonly<Record<number, string>> = {
  400: 'Bad request',
  413: 'The body is too large',
  415: 'Content-Type must be application/json',
};

/** Value of `retry-after` in a 503, for example while the database is unavailable or this process is stopping. */
const unavailableSeconds = 1;

/**
 * Sends the response for one error. Also works before Fastify has found the route of the request. An unexpected error
 * is also logged, because the response does not contain its details.
 */
export function respondToError(
  error: FastifyError | Refusal,
  request: FastifyRequest,
  reply: FastifyReply,
  logger?: Logger,
): void {
  const refusal = refusalOf(error);
  const { statusCode, body } = refusal;
  if (refusal !== error && statusCode >= 500) {
    const details = {
      err: error,
      method: request.method,
      route: request.routeOptions.url,
      requestId: request.headers['x-request-id'],
    };
    logger?.error(details, 'a request failed');
  }
  const wait = statusCode === 503 ? unavailableSeconds : refusal.retryAfterSeconds;
  if (wait !== null) reply.header('retry-after', wait);
  void reply.code(statusCode).send(body);
}

function refusalOf(error: FastifyError | Refusal): Refusal {
  if (error instanceof Refusal) return error;
  const { statusCode = 500 } = error;
  const message = messages[statusCode];
  if (message !== undefined) return new Refusal(statusCode, message);
  // An operator can fix the cause of an OperatorError, such as an unavailable database. A retry can then succeed, so
  // the status is 503 and not 500.
  return error instanceof OperatorError ? Refusal.unavailable() : new Refusal(500, 'Internal error');
}
