import type { FastifyError, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { OperatorError } from '../config/operator-error.js';
import { Refusal } from './refusal.js';

/** Where an API reports internal errors. A pino logger is one. */
export interface Logger {
  error(details: object, message: string): void;
}

/** Messages for errors of Fastify itself, by status; Fastify's own texts are for programmers. */
const messages: Readonly<Record<number, string>> = {
  400: 'Bad request',
  413: 'The body is too large',
  415: 'Content-Type must be application/json',
};

/** `retry-after` of a 503: the database is unavailable, or this process stops. */
const retryAfterSeconds = 1;

/** Responds to every error in the envelope. Logs unexpected errors, whose details the client does not get. */
export function respondToErrors(app: FastifyInstance, logger: Logger | undefined): void {
  app.setErrorHandler((error: FastifyError | Refusal, request, reply) => {
    respondToError(error, request, reply, logger);
  });
}

/** Responds to one error, also before a route is found. */
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
  // A problem that an operator can solve, such as an unavailable database, is no internal error and may pass.
  return error instanceof OperatorError ? Refusal.unavailable() : new Refusal(500, 'Internal error');
}
