import type { FastifyError, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { OperatorError } from '../config/operator-error.js';
import { failure } from './envelope.js';
import { Refusal } from './refusal.js';

/** Where an API reports what it could not do. A pino logger is one. */
export interface Logger {
  error(details: object, message: string): void;
}

/** What a caller is told where Fastify itself refuses, by status; its own texts are for programmers. */
const refusals: Readonly<Record<number, string>> = {
  400: 'Bad request',
  413: 'The body is too large',
  415: 'Content-Type must be application/json',
};

/** After which a caller may try again what failed for want of a database. */
const retryAfterSeconds = 1;

/** Answers every error in the envelope. Whatever was not foreseen is logged, and told to the caller only as such. */
export function answerErrors(app: FastifyInstance, logger: Logger | undefined): void {
  app.setErrorHandler((error: FastifyError | Refusal, request, reply) => {
    answerError(error, request, reply, logger);
  });
  app.setNotFoundHandler((_request, reply) => reply.code(404).send(failure('Route not found')));
}

/** Answers one error; also for those that arise before there is a route. */
export function answerError(
  error: FastifyError | Refusal,
  request: FastifyRequest,
  reply: FastifyReply,
  logger?: Logger,
): void {
  if (error instanceof Refusal) {
    void reply.code(error.statusCode).send(failure(error.message, error.problems, error.code));
    return;
  }
  const known = error.statusCode === undefined ? undefined : refusals[error.statusCode];
  if (known !== undefined) {
    void reply.code(error.statusCode ?? 400).send(failure(known));
    return;
  }
  const details = {
    err: error,
    method: request.method,
    route: request.routeOptions.url,
    requestId: request.headers['x-request-id'],
  };
  logger?.error(details, 'a request failed');
  // What an operator can mend, such as a database that is away, is no fault of this program, and may pass.
  if (error instanceof OperatorError)
    void reply.code(503).header('retry-after', retryAfterSeconds).send(failure('Service unavailable'));
  else void reply.code(500).send(failure('Internal error'));
}
