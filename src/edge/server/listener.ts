import Fastify from 'fastify';
import type { FastifyInstance, FastifyReply } from 'fastify';
import type { Eventual } from '../../gateway/eventual.js';
import type { Clock } from '../../gateway/ports.js';
import { Exchange } from '../request/exchange.js';
import { Findings } from '../request/findings.js';
import type { StepSources } from '../auth/step-sources.js';
import { skipSteps, runSteps } from '../auth/steps.js';
import { type DenialCode, reasonOf } from '../../policy/decision-table.js';
import { sendOwnResponse } from '../response/own-responses.js';
import { denialFailure, sendError, sendFailure } from '../response/replies.js';
import { GatewayError } from '../request/errors.js';
import { ConnectionLimiter, evictionDetail } from '../connections/connection-limiter.js';
import type { ConnectionCounts } from '../connections/connection-limiter.js';
import { Connections } from '../connections/connections.js';
import { createServer } from './create-server.js';
import type { ConnectionLimits, ServerOptions } from './create-server.js';
import { atEndOfTurn } from '../../node/end-of-turn.js';
import { RequestData } from '../request/request-data.js';
import { limitResponse, hasUnsentBytes } from '../response/limit-response.js';
import { closeOverUnreadBody } from '../response/lingering-close.js';
import type { UploadLimits } from '../response/lingering-close.js';
import { type ClientConnection, connectionOf, floodDetail } from '../connections/client-connection.js';
import { handleParserError, unlessArrived } from './protocol-errors.js';
import type { RefusedRequest } from './protocol-errors.js';
import { type ProxyOptions, registerProxy } from '../proxy/proxy.js';
import { timeText } from '../../telemetry/serialise.js';

/** Dependencies of a listener. */
export interface ListenerOptions
  extends
    Pick<ServerOptions, 'tls' | 'proxyProtocolFrom' | 'onRefusedConnection'>,
    Pick<ProxyOptions, 'upstreams' | 'identity'> {
  readonly authentication: StepSources;
  /** The OpenAPI description of the merchant API, as JSON. */
  readonly publicApi: string;
  readonly limits: ConnectionLimits & ConnectionCounts & UploadLimits;
  readonly clock: Clock;
  /** Headers that the gateway adds to every response of this listener. */
  readonly ownHeaders: Readonly<Record<string, string>>;
  /** The log that records each request once: when it was completed or aborted, or when the HTTP parser rejected it. */
  readonly requestLog: { ended(exchange: Exchange): void; refused(refused: RefusedRequest): void };
  /** Called for each unexpected exception. */
  readonly onInternalError: (error: unknown, exchange: Exchange) => void;
}

const endOfDrain =
  'the gateway shut down and closed the connection: the request was not complete after limits.drainTimeoutSeconds';
const notExecuted = 'not executed: the connection ended while this pipelined request waited for the requests before it';
const methodsWithBodies = ['POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'] as const;

/** A listener of the gateway, with its connections and its connection limits. */
export interface Listener {
  readonly app: FastifyInstance;
  readonly connections: Connections;
  readonly limiter: ConnectionLimiter;
}

/** Creates a listener of the gateway without binding it to a port. */
export async function createListener(options: ListenerOptions): Promise<Listener> {
  const { limits, tls, proxyProtocolFrom, onRefusedConnection, ownHeaders } = options;
  const ownHeaderList = Object.entries(ownHeaders).flat();
  const { trustedProxies } = options.authentication;
  const connections = new Connections();
  const limiter = new ConnectionLimiter(limits);
  const onRefused = (refused: RefusedRequest): void => {
    options.requestLog.refused(refused);
  };
  const app = Fastify({
    serverFactory: (handler) =>
      createServer(handler, {
        limits,
        tls,
        proxyProtocolFrom,
        trustedProxies,
        connections,
        limiter,
        onRefusedConnection,
      }),
    clientErrorHandler: (error, socket) => {
      unlessArrived(error, socket, () => {
        handleParserError(error, socket, connectionOf(socket).hasAsked, onRefused, ownHeaders);
      });
    },
    // Fastify routes every request to `/`, because the gateway's own route table selects the upstream. Fastify's router
    // would decode the path. It would also reject an undecodable path before any hook has checked the API key.
    rewriteUrl: () => '/',
    forceCloseConnections: 'idle',
    return503OnClosing: false,
  });
  // The proxy streams request bodies to the upstream. `hasBody: false` keeps Fastify from parsing them.
  for (const method of methodsWithBodies) app.addHttpMethod(method, { hasBody: false, overrideExisting: true });

  const timeouts = {
    stallMilliseconds: limits.requestTimeoutSeconds * 1000,
    totalMilliseconds: limits.answerTimeoutSeconds * 1000,
  };
  const beforeResponse = (exchange: Exchange): void => {
    // After an Upgrade, Node parses no further requests on the connection, so it cannot be kept alive.
    if (connections.responsesAreLast || exchange.data.headers.upgrade.length > 0)
      exchange.response.shouldKeepAlive = false;
    closeOverUnreadBody(exchange, limits, () => connections.areClosing);
  };
  const afterResponse = (exchange: Exchange): void => {
    if (!hasUnsentBytes(exchange)) return;
    // TLS reports a completed write only after the event loop turn of that write. Check a second time at the end of a
    // turn, because most responses have been sent completely at this second check and need no timers.
    atEndOfTurn(() => {
      if (hasUnsentBytes(exchange)) limitResponse(exchange, timeouts);
    });
  };

  const decide = decideWith(options.authentication, options.publicApi);
  app.addHook('onRequest', (request, reply, done) => {
    const { method = '', httpVersion, rawHeaders, socket } = request.raw;
    const connection = connectionOf(socket);
    const now = options.clock.now();
    const data = new RequestData(method, httpVersion, request.originalUrl, rawHeaders, connection, now);
    const exchange = new Exchange(request.raw, reply.raw, data, new Findings(ownHeaderList));
    const { place } = connection;
    place?.requestBegan();
    request.exchange = exchange;
    exchange.beforeResponse = beforeResponse;
    exchange.afterResponse = afterResponse;
    let hasTurn = false;
    exchange.whenOver(() => {
      options.requestLog.ended(exchange);
      connections.responseEnded(exchange, connection);
      if (hasTurn) place?.requestEnded(); // a dropped request can end while an earlier one is in progress
      connection.endTurn(exchange);
    });
    const turn = (alive: boolean): void => {
      hasTurn = alive;
      if (alive) {
        // Fastify's onResponse does not fire if the client disconnected or the response was aborted.
        reply.raw.on('close', () => {
          exchange.closed(() => closeReason(connections, connection));
        });
        decide(exchange, reply, done);
      } else {
        reply.hijack();
        // Otherwise a drain would count the connection as idle now, and could close it before an earlier response ends.
        reply.raw.shouldKeepAlive = false;
        skipSteps(exchange.found);
        exchange.decided();
        exchange.closed(() => notExecuted);
      }
    };
    connection.awaitTurn(exchange, turn);
  });
  app.setErrorHandler((error, request, reply) => {
    if (!(error instanceof GatewayError)) options.onInternalError(error, request.exchange);
    sendError(reply, error);
  });
  app.setNotFoundHandler((_request, reply) => {
    sendError(reply, new GatewayError('not_found', 'no route has this path'));
  });
  registerProxy(app, { upstreams: options.upstreams, identity: options.identity, timeouts });
  app.addHook('preClose', async () => {
    await connections.arrived();
    connections.closeUnused();
  });
  await app.ready();
  return { app, connections, limiter };
}

/** Returns why the gateway itself closed the connection of a request; null if the gateway did not close it. */
function closeReason({ areCutOff }: Connections, connection: ClientConnection): string | null {
  if (areCutOff) return endOfDrain;
  if (connection.isFlooded) return floodDetail;
  return connection.place?.isEvicted === true ? evictionDetail : null;
}

/**
 * Returns a function that runs the steps that check a request. The function responds to a denied request, and to an
 * accepted request whose route has no upstream. For any other accepted request, it calls `done`, and the proxy forwards
 * the request. If a step fails, it calls `done` with the error.
 */
function decideWith(sources: StepSources, publicApi: string) {
  return (exchange: Exchange, reply: FastifyReply, done: (error?: Error) => void): void => {
    const { data, found } = exchange;
    const goOn = (denial: DenialCode | null): void => {
      if (denial !== null) {
        exchange.outcome = denial;
        if (found.facts !== null) exchange.detail = reasonOf(denial, found.facts, found.credential, timeText);
      } else if (found.credential !== null) data.connection.place?.accepted(found.credential.merchantId, data.hasBody);
      exchange.decided();
      if (denial !== null) sendFailure(reply, denialFailure(denial));
      else if (found.match?.route.upstream === null) sendOwnResponse(reply, publicApi);
      else done();
    };
    const fail = (error: unknown): void => {
      exchange.decided();
      done(error instanceof Error ? error : new Error('a value other than an Error was thrown', { cause: error }));
    };
    let denial: Eventual<DenialCode | null>;
    try {
      denial = runSteps(data, found, exchange, sources);
    } catch (error) {
      fail(error);
      return;
    }
    if (denial instanceof Promise) void denial.then(goOn, fail);
    else if (data.hasBody)
      // Continue one microtask later. By then, Node has read a body that arrived together with the headers, so the body
      // can be forwarded without a stream.
      void Promise.resolve(denial).then(goOn);
    else goOn(denial);
  };
}
