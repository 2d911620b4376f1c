import http from 'node:http';
import https from 'node:https';
import Fastify from 'fastify';
import type { FastifyInstance } from 'fastify';
import type { CallerIdentity, Clock } from '../gateway/ports.js';
import { authenticationHook } from './authentication.js';
import type { AuthenticationHookOptions } from './authentication.js';
import { GatewayError } from './errors.js';
import { Connections } from './connections.js';
import { Exchange } from './exchange.js';
import { awaitTurn } from './pipeline.js';
import { answerProtocolError } from './protocol-errors.js';
import type { RefusedRequest } from './protocol-errors.js';
import { registerProxy } from './proxy.js';
import { sendError } from './replies.js';
import { closeOverUnreadBody } from './unread-body.js';
import type { Upstream } from './upstream.js';

/** Limits of a listener's connections. */
interface ListenerLimits {
  readonly headerBytes: number;
  readonly headersTimeoutSeconds: number;
  readonly requestTimeoutSeconds: number;
  readonly keepAliveTimeoutSeconds: number;
  readonly connections: number;
}

/** PEM certificate chain and private key. */
export interface TlsIdentity {
  readonly cert: Buffer;
  readonly key: Buffer;
}

/** What a listener is made of. */
export interface ListenerOptions {
  readonly authentication: AuthenticationHookOptions;
  readonly upstreams: ReadonlyMap<string, Upstream>;
  /** Signs who calls for upstreams; null: no signature. */
  readonly identity: CallerIdentity | null;
  readonly limits: ListenerLimits;
  readonly clock: Clock;
  /** Null: plain HTTP. */
  readonly tls: TlsIdentity | null;
  /** Told of every request when it is over. */
  readonly onExchange: (exchange: Exchange) => void;
  /** Told of every request that never became one. */
  readonly onRefused: (refused: RefusedRequest) => void;
  /** Told of a failure that was not foreseen. */
  readonly onInternalError: (error: unknown, exchange: Exchange) => void;
}

const methodsWithBodies = ['POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'] as const;

/** One listener of the gateway. */
export interface Listener {
  readonly app: FastifyInstance;
  readonly connections: Connections;
}

/** Builds one listener of the gateway; it does not listen yet. */
export async function createListener(options: ListenerOptions): Promise<Listener> {
  const app = Fastify({
    serverFactory: (handler) => createServer(handler, options),
    clientErrorHandler: (error, socket) => {
      const refused = answerProtocolError(error, socket, connections.hasAsked(socket));
      if (refused !== null) options.onRefused(refused);
    },
    // The gateway's own route table decides. Fastify's router would decode a path before it matches it, and would
    // answer one that it cannot decode before any hook has asked for a key.
    rewriteUrl: () => '/',
    forceCloseConnections: 'idle',
    return503OnClosing: false,
  });
  const connections = new Connections(app.server, options.tls !== null);
  // Bodies are streamed to the upstream by the proxy: to Fastify no method has one, so that none is ever parsed.
  for (const method of methodsWithBodies) app.addHttpMethod(method, { hasBody: false, overrideExisting: true });

  app.addHook('onRequest', (request, reply, done) => {
    const exchange = new Exchange(request.raw, reply.raw, request.originalUrl, options.clock.now());
    request.exchange = exchange;
    exchange.whenOver(() => {
      options.onExchange(exchange);
      connections.answerEnded();
    });
    awaitTurn(exchange, (alive) => {
      if (alive) {
        // Not Fastify's onResponse: that is silent about a caller who hung up and an answer that broke off.
        reply.raw.once('close', () => {
          exchange.closed();
        });
        done();
      } else {
        reply.hijack();
        exchange.decided();
        exchange.closed();
      }
    });
  });
  app.addHook('onRequest', authenticationHook(options.authentication));
  app.addHook('onSend', (request, reply, _payload, done) => {
    // Bytes behind an Upgrade are not read as requests, so that connection cannot be kept either.
    if (connections.closing || request.headers.upgrade !== undefined) reply.raw.shouldKeepAlive = false;
    closeOverUnreadBody(reply);
    done();
  });
  app.setErrorHandler((error, request, reply) => {
    const { exchange } = request;
    const failure = asGatewayError(error, exchange);
    if (failure === null) options.onInternalError(error, exchange);
    return sendError(reply, failure ?? error);
  });
  app.setNotFoundHandler((_request, reply) =>
    sendError(reply, new GatewayError('not_found', 'no route has this path')),
  );
  registerProxy(app, options.upstreams, options.limits.requestTimeoutSeconds * 1000, options.identity);
  app.addHook('preClose', (done) => {
    connections.closeUnused();
    done();
  });
  await app.ready();
  return { app, connections };
}

/** What a failure that Fastify met says; null for one that nobody foresaw. */
function asGatewayError(error: unknown, exchange: Exchange): GatewayError | null {
  if (error instanceof GatewayError) return error;
  const detail = error instanceof Error ? error.message : '';
  if (exchange.response.destroyed) return new GatewayError('client_closed', detail, { cause: error });
  // The upstream had answered, so it is its answer that broke off before its first byte was out.
  if (exchange.upstreamDuration !== null) return new GatewayError('upstream_failed', detail, { cause: error });
  return null;
}

function createServer(handler: http.RequestListener, { limits, tls }: ListenerOptions): http.Server {
  const serverOptions: http.ServerOptions = {
    maxHeaderSize: limits.headerBytes,
    headersTimeout: limits.headersTimeoutSeconds * 1000,
    requestTimeout: limits.requestTimeoutSeconds * 1000,
    keepAliveTimeout: limits.keepAliveTimeoutSeconds * 1000,
    connectionsCheckingInterval: 1000, // Node's default of 30 s would let a slow client have four times its time
    requireHostHeader: false, // checked in protocol.ts: Node's own refusal is not in the envelope
  };
  const server =
    tls === null
      ? http.createServer(serverOptions, handler)
      : https.createServer(
          { ...serverOptions, ...tls, minVersion: 'TLSv1.2', handshakeTimeout: limits.headersTimeoutSeconds * 1000 },
          handler,
        );
  server.maxHeadersCount = 0; // header bytes are limited; a limit of their number would drop a proxy's X-Forwarded-For
  server.maxConnections = limits.connections;
  // The default would ask for the body before anybody has looked at the key.
  server.on('checkContinue', handler);
  server.on('checkExpectation', handler);
  // Without a listener Node would close the connection without an answer.
  server.on('connect', (request) => {
    const { socket } = request;
    const response = new http.ServerResponse(request);
    response.shouldKeepAlive = false;
    response.assignSocket(socket);
    // Node tells the end of the responses that it made itself; of this one it does not know.
    const end = (): void => {
      response.emit('close');
      socket.end();
    };
    response.once('finish', end);
    socket.once('close', end);
    handler(request, response);
  });
  return server;
}
