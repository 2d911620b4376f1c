import type { FastifyError, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { OperatorError } from '../config/operator-error.js';
import { Refusal } from './refusal.js';

/** Where an API reports what it could not do. A pino logger is one. */
export interface Logger {
  error(details: object, message: string): void;
}

/** What a caller is told where Fastify itself refuses, by status; its own texts are for programmers. */
const messages: Readonly<Record<number, string>> = {
  400: 'Bad request',
  413: 'The body is too large',
  415: 'Content-Type must be application/json',
};

/** After which a caller may try again what failed for want of a database, or because this process stops. */
const retryAfterSeconds = 1;

/** Answers every error in the envelope. Whatever was not foreseen is logged, and told to the caller only as such. */
export function answerErrors(app: FastifyInstance, logger: Logger | undefined): void {
  app.setErrorHandler((error: FastifyError | Refusal, request, reply) => {
    answerError(error, request, reply, logger);
  });
}

/** Answers one error; also for those that arise before there is a route. */
export function answerError(
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
  // What an operator can mend, such as a database that is away, is no fault of this program, and may pass.
  return error instanceof OperatorError ? Refusal.unavailable() : new Refusal(500, 'Internal error');
}
