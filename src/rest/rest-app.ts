import { randomUUID } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import type { Socket } from 'node:net';
import type { Server } from 'node:tls';
import Fastify, {
  type FastifyBaseLogger,
  type FastifyError,
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
  type FastifyServerOptions,
  type RawReplyDefaultExpression,
  type RawRequestDefaultExpression,
  type RawServerDefault,
} from 'fastify';
import FindMyWay from 'find-my-way';
import { deepestLevel, parseStrictJson, StrictJsonError } from '../json/strict-json.js';
import { STATUS_CODES } from '../node/http.js';
import type { ServerTls } from '../tls/server-tls.js';
import Type from '../typebox/typebox.js';
import { plainAddress } from './counted-source.js';
import { respondToError, type Logger } from './error-responses.js';
import { failure } from './envelope.js';
import { codeOf, Refusal } from './refusal.js';
import { type TypeboxProvider, validatorCompiler, withAllProblems } from './validation.js';

/** A Fastify app whose handlers get the static types of their schemas. */
export type RestApp = FastifyInstance<
  RawServerDefault,
  RawRequestDefaultExpression,
  RawReplyDefaultExpression,
  FastifyBaseLogger,
  TypeboxProvider
>;

/** Query schema of a route that accepts no query parameters. */
export const noQuery = Type.Object({});

/** Schema of the path parameter of a route for one record. */
export const idParams = Type.Object({ id: Type.String() });

/** Options of a server whose errors have the format of the API. */
export interface ServerOptions {
  readonly logger?: Logger | undefined;
  /**
   * Called for each request whose header section is too large, with the peer's address (null if unknown). No Fastify
   * hook runs for such a request.
   */
  readonly onOversized?: (address: string | null) => void;
  /** TLS of the listener. When the app closes, it stops the reload of certificates. Null or omitted: plain HTTP. */
  readonly tls?: ServerTls | null;
  /** Maximum size of a request head over plain HTTP, in bytes. Undefined or omitted: Node's default, 16 KiB. */
  readonly maxHeadBytes?: number | undefined;
}

/** Options of an API with JSON bodies and one response format. */
export interface RestOptions extends ServerOptions {
  /**
   * Adds the hook that authenticates requests. The hook runs before the app rejects unknown paths, and before it reads
   * the body.
   */
  readonly admit: (app: FastifyInstance) => void;
}

const bodyLimitBytes = 1024 * 1024;
const requestTimeoutMilliseconds = 30_000;
/**
 * Turns off Fastify's length limit for path parameters. With this limit, Fastify would reject a longer parameter before
 * authentication. The limit of the whole request head still applies.
 */
const longestId = Number.MAX_SAFE_INTEGER;
/** Maximum number of connections. All gateways together need fewer. Excess connections are closed at once. */
const maxConnections = 10_000;

/** Creates an app without routes. All responses have the same JSON format and `cache-control: no-store`. */
export function createRestApp({ admit, ...options }: RestOptions): RestApp {
  return serveJson(createServer(options), admit);
}

/** Creates an app without routes, whose error responses have the JSON format of the API. */
export function createServer({ logger, onOversized, tls = null, maxHeadBytes }: ServerOptions): FastifyInstance {
  const parserErrors = new ParserErrors(onOversized);
  const app = Fastify({
    ...(tls === null ? { http: { maxHeaderSize: maxHeadBytes } } : { https: tls.options }),
    bodyLimit: bodyLimitBytes,
    requestTimeout: requestTimeoutMilliseconds,
    // Turns off Fastify's own 503, which would not have the JSON format of all other responses.
    return503OnClosing: false,
    routerOptions: { maxParamLength: longestId },
    genReqId: () => randomUUID(),
    clientErrorHandler: parserErrors.clientErrorHandler,
    frameworkErrors: (error, request, reply) => {
      respondToError(error, request, forbidCaching(reply), logger);
    },
  });
  app.server.maxConnections = maxConnections;
  if (tls !== null) {
    tls.serve(app.server as unknown as Server);
    app.addHook('onClose', () => tls.stop());
  }
  app.setErrorHandler((error: FastifyError | Refusal, request, reply) => {
    respondToError(withAllProblems(error, request), request, reply, logger);
  });
  parserErrors.watch(app);
  refuseWhileStopping(app);
  return app;
}

/** Turns an app, or the part of an app below a path prefix, into an API with JSON bodies. */
export function serveJson(app: FastifyInstance, admit: RestOptions['admit']): RestApp {
  app.addHook('onRequest', (_request, reply, done) => {
    forbidCaching(reply);
    done();
  });
  admit(app);
  refuseOtherRequests(app);
  acceptJsonBodies(app);
  app.setValidatorCompiler(validatorCompiler);
  return app.withTypeProvider<TypeboxProvider>();
}

/**
 * During shutdown, rejects requests that a client has pipelined after a request in progress. After the 503, Fastify
 * closes the connection.
 */
function refuseWhileStopping(app: FastifyInstance): void {
  let isStopping = false;
  app.addHook('preClose', (done) => {
    isStopping = true;
    done();
  });
  app.addHook('onRequest', (_request, reply, done) => {
    if (isStopping) forbidCaching(reply);
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

/** Accepts only JSON bodies in UTF-8, which are parsed strictly and without type conversion. */
function acceptJsonBodies(app: FastifyInstance): void {
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('application/json', { parseAs: 'buffer' }, (request, body: Buffer, done) => {
    // Many clients send a content type with a DELETE although its body is empty.
    if (body.length === 0 && !takesBody(request)) {
      done(null);
      return;
    }
    if ((request.headers['content-encoding'] ?? identity).toLowerCase() !== identity) {
      done(new Refusal(415, 'Content-Encoding is not supported: send the body uncompressed'));
      return;
    }
    try {
      done(null, parseStrictJson(utf8.decode(body)));
    } catch (error) {
      const message = error instanceof StrictJsonError ? messageOf(error) : 'The body is not valid UTF-8';
      done(Refusal.invalid([{ path: '', message }]));
    }
  });
  app.addHook('onRequest', (request, _reply, done) => {
    const { headers } = request.raw;
    // Ignores the content type that some clients, such as fetch and curl, send with an empty body.
    if (!takesBody(request) && isWithoutBody(headers)) delete headers['content-type'];
    // Fastify does not check the content type of a request without a body. If the route requires a body, this hook
    // therefore rejects a request without a content type.
    const missing = takesBody(request) && headers['content-type'] === undefined;
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
    'too-precise': 'The body has a number with more digits than can be stored exactly',
  };
  return messages[problem];
}

function isWithoutBody(headers: IncomingHttpHeaders): boolean {
  return headers['transfer-encoding'] === undefined && (headers['content-length'] ?? '0') === '0';
}

/**
 * Returns true if the request's route accepts a body. A route without a body schema accepts none, for example the route
 * that revokes a key.
 */
function takesBody({ method, is404, routeOptions }: FastifyRequest): boolean {
  return methodsWithBody.has(method) && !is404 && routeOptions.schema?.body !== undefined;
}

declare module 'fastify' {
  interface FastifyRequest {
    /** The route path that matches this request, if the route supports only other methods; null otherwise. */
    pathOfOtherMethods: string | null;
  }
}

/** A path with routes, and the methods of these routes. */
interface RoutePath {
  readonly url: string;
  readonly methods: Set<string>;
}

/**
 * Rejects unknown paths and unsupported methods before the body is read. Must be called after authentication is added,
 * because unauthenticated clients must not find out which paths exist.
 */
function refuseOtherRequests(app: FastifyInstance): void {
  const known = new Map<string, RoutePath>();
  // A separate router ignores the method and finds only the path. The alternative, a route for each unsupported method,
  // would mean 30 routes per path. Registering them would take half of the CPU time of an app's start.
  const paths = FindMyWay({ maxParamLength: longestId });
  app.addHook('onRoute', ({ url, method }) => {
    const path = known.get(url) ?? { url, methods: new Set() };
    if (!known.has(url)) paths.on('GET', url, () => undefined, path);
    known.set(url, path);
    for (const one of [method].flat()) path.methods.add(one);
  });
  app.decorateRequest('pathOfOtherMethods', null);
  app.addHook('onRequest', (request, reply, done) => {
    if (!request.is404) {
      done();
      return;
    }
    const path = (paths.find('GET', request.url)?.store ?? null) as RoutePath | null;
    if (path === null) {
      done(new Refusal(404, 'Route not found', [], 'route_not_found'));
      return;
    }
    request.pathOfOtherMethods = path.url;
    const allow = [...path.methods].toSorted().join(', ');
    reply.header('allow', allow);
    done(new Refusal(405, `Method not allowed: this path takes ${allow}`));
  });
}

const headersTooLarge = 'HPE_HEADER_OVERFLOW';
const lingerMilliseconds = 2_000;
const statuses: Readonly<Record<string, number>> = { ERR_HTTP_REQUEST_TIMEOUT: 408, [headersTooLarge]: 431 };

/** Sends error responses in the API's JSON format for requests that Node's HTTP parser rejects. */
class ParserErrors {
  readonly #waiting = new WeakMap<Socket, number>();
  readonly #lingering = new WeakSet<Socket>();
  readonly #onOversized: RestOptions['onOversized'];

  constructor(onOversized: RestOptions['onOversized']) {
    this.#onOversized = onOversized;
  }

  /**
   * Sends the error response, unless another response is outstanding, and closes the connection. This function is
   * Fastify's option `clientErrorHandler`.
   */
  readonly clientErrorHandler: NonNullable<FastifyServerOptions['clientErrorHandler']> = (error, socket) => {
    if (this.#lingering.has(socket)) return; // the parser reports the error again for each further packet
    if (error.code === headersTooLarge) this.#onOversized?.(plainAddress(socket.remoteAddress));
    // If an earlier request has no response yet, the client would take this error for the response to that request.
    // That request could have moved money, so the connection is closed without a response.
    const isAnswerable = socket.writable && (this.#waiting.get(socket) ?? 0) === 0;
    if (isAnswerable) socket.write(responseTo(error.code));
    // A client that is still sending would lose the response if the connection closed at once. A later close is safe
    // only if the parser has failed. After a timeout, the rest of the request could still arrive and be executed.
    if (isAnswerable && (error.code as string | undefined)?.startsWith('HPE_') === true) {
      this.#lingering.add(socket.end());
      setTimeout(() => socket.destroy(), lingerMilliseconds).unref();
    } else socket.destroy(error);
  };

  /** Counts the outstanding responses of each connection. */
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
    `content-length: ${Buffer.byteLength(body)}\r\ncache-control: no-store\r\nconnection: close\r\n\r\n${body}`
  );
}
