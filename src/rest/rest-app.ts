import Fastify, {
  type FastifyBaseLogger,
  type FastifyInstance,
  type FastifyReply,
  type RawReplyDefaultExpression,
  type RawRequestDefaultExpression,
  type RawServerDefault,
} from 'fastify';
import Type from '../typebox/typebox.js';
import { answerError, answerErrors, type Logger } from './answer-errors.js';
import { acceptJsonBodies } from './json-body.js';
import { ParserErrors } from './parser-errors.js';
import { refuseOtherRequests } from './other-requests.js';
import { Refusal } from './refusal.js';
import { validatorCompiler, type TypeboxProvider } from './validation.js';

/** A Fastify instance that knows the types of the schemas. */
export type RestApp = FastifyInstance<
  RawServerDefault,
  RawRequestDefaultExpression,
  RawReplyDefaultExpression,
  FastifyBaseLogger,
  TypeboxProvider
>;

/** The query of a route that takes none. */
export const noQuery = Type.Object({});

/** The path parameter of a route about one record. */
export const idParams = Type.Object({ id: Type.String() });

/** How an API of JSON bodies, JSON answers and one envelope is made. */
export interface RestOptions {
  readonly logger?: Logger | undefined;
  /** Adds the hook that lets callers in: before routing and before a byte of the body is read. */
  readonly admit: (app: FastifyInstance) => void;
  /** Null or left out: plain HTTP. */
  readonly tls?: ServerTls | null;
}

/** A certificate with its intermediates, and its private key, in PEM. */
export interface ServerTls {
  readonly cert: Buffer;
  readonly key: Buffer;
}

const bodyLimitBytes = 1024 * 1024;
const requestTimeoutMilliseconds = 30_000;
/** Only the head of a request bounds it: what Fastify refuses for its length it refuses before any hook, to strangers too. */
const longestId = Number.MAX_SAFE_INTEGER;
/** More than a fleet of gateways opens; further connections are closed at once. */
const maxConnections = 10_000;

/** Makes an app without routes, in which every answer is in the envelope and no answer may be cached. */
export function createRestApp({ logger, admit, tls = null }: RestOptions): RestApp {
  const parserErrors = new ParserErrors();
  const app = Fastify({
    ...(tls === null ? {} : { https: { ...tls, minVersion: 'TLSv1.2' } }),
    bodyLimit: bodyLimitBytes,
    requestTimeout: requestTimeoutMilliseconds,
    // Fastify would answer outside of the envelope.
    return503OnClosing: false,
    routerOptions: { maxParamLength: longestId },
    clientErrorHandler: parserErrors.clientErrorHandler,
    frameworkErrors: (error, request, reply) => {
      answerError(error, request, forbidCaching(reply), logger);
    },
  });
  app.server.maxConnections = maxConnections;
  answerErrors(app, logger);
  parserErrors.watch(app);
  app.addHook('onRequest', (_request, reply, done) => {
    forbidCaching(reply);
    done();
  });
  refuseWhileStopping(app);
  admit(app);
  refuseOtherRequests(app);
  acceptJsonBodies(app);
  app.setValidatorCompiler(validatorCompiler);
  return app.withTypeProvider<TypeboxProvider>();
}

/** A request that is pipelined behind one that is still being answered. Fastify closes its connection after the response. */
function refuseWhileStopping(app: FastifyInstance): void {
  let isStopping = false;
  app.addHook('preClose', (done) => {
    isStopping = true;
    done();
  });
  app.addHook('onRequest', (_request, _reply, done) => {
    done(isStopping ? Refusal.unavailable() : undefined);
  });
}

function forbidCaching(reply: FastifyReply): FastifyReply {
  return reply.header('cache-control', 'no-store');
}
