import type { FastifyError, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
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

/** Value of `retry-after` in a 503. This status means that the database is unavailable or this process is stopping. */
const retryAfterSeconds = 1;

/**
 * Makes the app send an error response for every error. Unexpected errors are also logged, because clients do not get
 * their details.
 */
export function respondToErrors(app: FastifyInstance, logger: Logger | undefined): void {
  app.setErrorHandler((error: FastifyError | Refusal, request, reply) => {
    respondToError(error, request, reply, logger);
  });
}

/** Sends the response for one error. Also works for a request for which no route was found yet. */
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
  if (statusCode === 503) reply.header('retry-after', retryAfterSeconds);
  void reply.code(statusCode).send(body);
}

function refusalOf(error: FastifyError | Refusal): Refusal {
  if (error instanceof Refusal) return error;
  const { statusCode = 500 } = error;
  const message = messages[statusCode];
  if (message !== undefined) return new Refusal(statusCode, message);
  // An operator can fix the cause of an OperatorError, such as an unavailable database. So the status is 503 and not
  // 500, because 503 invites the client to retry.
  return error instanceof OperatorError ? Refusal.unavailable() : new Refusal(500, 'Internal error');
}
