import type { Socket } from 'node:net';
import Fastify, {
  type FastifyBaseLogger,
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
  type FastifyServerOptions,
  type RawReplyDefaultExpression,
  type RawRequestDefaultExpression,
  type RawServerDefault,
} from 'fastify';
import { deepestLevel, parseStrictJson, StrictJsonError } from '../json/strict-json.js';
import { METHODS, STATUS_CODES } from '../node/http.js';
import Type from '../typebox/typebox.js';
import { answerError, answerErrors, type Logger } from './answer-errors.js';
import { failure } from './envelope.js';
import { codeOf, Refusal } from './refusal.js';
import { type TypeboxProvider, validatorCompiler } from './validation.js';

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

const methodsWithBody = new Set(['POST', 'PUT', 'PATCH']);
const identity = 'identity';
const longestName = 64;
const utf8 = new TextDecoder('utf-8', { fatal: true });

/** Makes JSON the only kind of body, read strictly and as UTF-8, and not converted by anything later. */
function acceptJsonBodies(app: FastifyInstance): void {
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('application/json', { parseAs: 'buffer' }, (request, body: Buffer, done) => {
    // Many clients label even the empty body of a DELETE.
    if (body.length === 0 && !takesBody(request)) {
      done(null);
      return;
    }
    if ((request.headers['content-encoding'] ?? identity).toLowerCase() !== identity) {
      done(new Refusal(415, 'Content-Encoding must be left out: a body is read as it comes'));
      return;
    }
    try {
      done(null, parseStrictJson(utf8.decode(body)));
    } catch (error) {
      const message = error instanceof StrictJsonError ? messageOf(error) : 'The body is not valid UTF-8';
      done(Refusal.invalid([{ path: '', message }]));
    }
  });
  // Fastify asks for a content type only where there is a body.
  app.addHook('onRequest', (request, _reply, done) => {
    const missing = takesBody(request) && request.headers['content-type'] === undefined;
    done(missing ? new Refusal(415, 'Content-Type must be application/json') : undefined);
  });
}

function messageOf({ problem, fieldName }: StrictJsonError): string {
  const field = `The field "${fieldName.slice(0, longestName)}"`;
  const messages = {
    invalid: 'The body is not valid JSON',
    'repeated-name': `${field} is given more than once`,
    'forbidden-name': `${field} is not allowed`,
    'too-deep': `The body is nested more than ${deepestLevel} levels deep`,
    'too-precise': 'The body has a number with more digits than can be kept',
  };
  return messages[problem];
}

/** A route whose schema has no body, such as one that only revokes, takes none. */
function takesBody({ method, is404, routeOptions }: FastifyRequest): boolean {
  return methodsWithBody.has(method) && !is404 && routeOptions.schema?.body !== undefined;
}

declare module 'fastify' {
  interface FastifyContextConfig {
    /** The route stands for the methods that its path does not take; these are those that it does, as `allow` lists them. */
    allow?: string;
  }
}

/** Has requests of its own by which a client asks for a tunnel, and which Node hands to no route. */
const tunnelMethod = 'CONNECT';

/**
 * Refuses, before a byte of the body is read, a path that is no route's, and a method that its path does not take. Belongs
 * behind what lets callers in: nobody else learns which paths there are.
 */
function refuseOtherRequests(app: FastifyInstance): void {
  const taken = new Map<string, Set<string>>();
  for (const method of METHODS) {
    if (method !== tunnelMethod && !app.supportedMethods.includes(method)) app.addHttpMethod(method);
  }
  app.addHook('onRoute', ({ url, method, config }) => {
    if (config?.allow !== undefined) return;
    const methods = taken.get(url) ?? new Set();
    for (const one of [method].flat()) methods.add(one);
    taken.set(url, methods);
  });
  // A plugin is loaded once all routes are there.
  void app.register((scope, _options, done) => {
    for (const [url, methods] of taken) {
      const others = scope.supportedMethods.filter((method) => !methods.has(method));
      const allow = [...methods].toSorted().join(', ');
      scope.route({ method: others, url, exposeHeadRoute: false, config: { allow }, handler: () => null });
    }
    done();
  });
  app.addHook('onRequest', ({ is404, routeOptions: { config } }, reply, done) => {
    if (is404) {
      done(new Refusal(404, 'Route not found', [], 'route_not_found'));
    } else if (config.allow !== undefined) {
      reply.header('allow', config.allow);
      done(new Refusal(405, `Method not allowed: this path takes ${config.allow}`));
    } else {
      done();
    }
  });
}

const statuses: Readonly<Record<string, number>> = { ERR_HTTP_REQUEST_TIMEOUT: 408, HPE_HEADER_OVERFLOW: 431 };

/** Answers in the envelope what Node's HTTP parser refuses. */
class ParserErrors {
  readonly #waiting = new WeakMap<Socket, number>();

  /** For Fastify's option of this name. */
  readonly clientErrorHandler: NonNullable<FastifyServerOptions['clientErrorHandler']> = (error, socket) => {
    // The peer would take the refusal for the answer to the request before it, which may have moved money.
    if (socket.writable && (this.#waiting.get(socket) ?? 0) === 0) socket.write(responseTo(error.code));
    socket.destroy(error);
  };

  /** Keeps account of the connections on which a request still waits for its answer. */
  watch(app: FastifyInstance): void {
    app.addHook('onRequest', ({ socket }, reply, done) => {
      this.#waiting.set(socket, (this.#waiting.get(socket) ?? 0) + 1);
      reply.raw.once('close', () => this.#waiting.set(socket, (this.#waiting.get(socket) ?? 1) - 1));
      done();
    });
  }
}

function responseTo(code: string | undefined): string {
  const status = statuses[code ?? ''] ?? 400;
  const reason = STATUS_CODES[status] ?? '';
  const body = JSON.stringify(failure(reason, [], codeOf(status)));
  return (
    `HTTP/1.1 ${status} ${reason}\r\ndate: ${new Date().toUTCString()}\r\ncontent-type: application/json; charset=utf-8\r\n` +
    `content-length: ${Buffer.byteLength(body)}\r\nconnection: close\r\n\r\n${body}`
  );
}
