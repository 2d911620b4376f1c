import Fastify from 'fastify';
import type { FastifyInstance, FastifyReply } from 'fastify';
import type { Eventual } from '../../gateway/eventual.js';
import type { CallerIdentity, Clock } from '../../gateway/ports.js';
import type { IpRanges } from '../../policy/ip-ranges.js';
import { Findings, Exchange } from '../request/exchange.js';
import { leaveOut, takeSteps } from '../auth/steps.js';
import type { StepSources } from '../auth/steps.js';
import { type DenialCode, reasonOf } from '../../policy/decision-table.js';
import { denialFailure, sendError, sendFailure } from '../response/replies.js';
import { GatewayError } from '../request/errors.js';
import { ConnectionLimiter, evictionDetail } from '../connections/connection-limiter.js';
import type { ConnectionCounts } from '../connections/connection-limiter.js';
import { Connections } from '../connections/connections.js';
import { createServer } from './create-server.js';
import type { ConnectionLimits, RefusedConnection } from './create-server.js';
import { atEndOfTurn } from '../../node/end-of-turn.js';
import { connectionFactsOf } from '../request/connection-facts.js';
import { RequestData } from '../request/request-data.js';
import { limitAnswer, waitsForCaller } from '../response/limit-answer.js';
import { closeOverUnreadBody } from '../response/lingering-close.js';
import type { UploadLimits } from '../response/lingering-close.js';
import { awaitTurn, endTurn } from '../connections/pipeline.js';
import { answerProtocolError } from './protocol-errors.js';
import type { RefusedRequest } from './protocol-errors.js';
import { registerProxy } from '../proxy/proxy.js';
import type { TlsEndpoint } from '../tls/tls-endpoint.js';
import { timeText } from '../../telemetry/serialise.js';
import type { Upstream } from '../proxy/upstream.js';

/** What a listener is made of. */
export interface ListenerOptions {
  readonly authentication: StepSources;
  readonly upstreams: ReadonlyMap<string, Upstream>;
  /** Signs who calls for upstreams; null: no signature. */
  readonly identity: CallerIdentity | null;
  readonly limits: ConnectionLimits & ConnectionCounts & UploadLimits;
  readonly clock: Clock;
  /** Null: plain HTTP. */
  readonly tls: TlsEndpoint | null;
  /** What every response has. */
  readonly ownHeaders: Readonly<Record<string, string>>;
  /** The peers that begin each connection with a PROXY protocol header; null where nobody does. */
  readonly proxyProtocolFrom: IpRanges | null;
  /** Told of every request when it is over. */
  readonly onExchange: (exchange: Exchange) => void;
  /** Told of every request that never became one. */
  readonly onRefused: (refused: RefusedRequest) => void;
  /** Told of every connection that was closed for what it did. */
  readonly onRefusedConnection: (why: RefusedConnection) => void;
  /** Told of a failure that was not foreseen. */
  readonly onInternalError: (error: unknown, exchange: Exchange) => void;
}

const endOfDrain = 'the gateway ended, and cut it off: it was not over after limits.drainTimeoutSeconds';
const methodsWithBodies = ['POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'] as const;

/** One listener of the gateway. */
export interface Listener {
  readonly app: FastifyInstance;
  readonly connections: Connections;
  readonly limiter: ConnectionLimiter;
}

/** Builds one listener of the gateway; it does not listen yet. */
export async function createListener(options: ListenerOptions): Promise<Listener> {
  const { limits, tls, proxyProtocolFrom, onRefusedConnection, ownHeaders } = options;
  const ownHeaderList = Object.entries(ownHeaders).flat();
  const { trustedProxies } = options.authentication;
  const connections = new Connections();
  const limiter = new ConnectionLimiter(limits);
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
      const refused = answerProtocolError(error, socket, connections.hasAsked(socket), ownHeaders);
      if (refused !== null) options.onRefused(refused);
    },
    // The gateway's own route table decides. Fastify's router would decode a path before it matches it, and would
    // answer one that it cannot decode before any hook has asked for a key.
    rewriteUrl: () => '/',
    forceCloseConnections: 'idle',
    return503OnClosing: false,
  });
  // Bodies are streamed to the upstream by the proxy: to Fastify no method has one, so that none is ever parsed.
  for (const method of methodsWithBodies) app.addHttpMethod(method, { hasBody: false, overrideExisting: true });

  const timeouts = {
    stallMilliseconds: limits.requestTimeoutSeconds * 1000,
    totalMilliseconds: limits.answerTimeoutSeconds * 1000,
  };
  const beforeAnswer = (exchange: Exchange): void => {
    // Bytes behind an Upgrade are not read as requests, so that connection cannot be kept either.
    if (connections.answersAreLast || exchange.data.headers.upgrade.length > 0)
      exchange.response.shouldKeepAlive = false;
    closeOverUnreadBody(exchange, limits, () => connections.areClosing);
  };
  const afterAnswer = (exchange: Exchange): void => {
    if (!waitsForCaller(exchange)) return;
    // TLS says only in the next turn that all is written, of almost every answer: those need no timers.
    atEndOfTurn(() => {
      if (waitsForCaller(exchange)) limitAnswer(exchange, timeouts);
    });
  };

  const decide = decideWith(options.authentication);
  app.addHook('onRequest', (request, reply, done) => {
    const { method = '', httpVersion, rawHeaders, socket } = request.raw;
    const connection = connectionFactsOf(socket);
    const now = options.clock.now();
    const data = new RequestData(method, httpVersion, request.originalUrl, rawHeaders, connection, now);
    const exchange = new Exchange(request.raw, reply.raw, data, new Findings(ownHeaderList));
    const { place } = connection;
    place?.requestBegan();
    request.exchange = exchange;
    exchange.beforeAnswer = beforeAnswer;
    exchange.afterAnswer = afterAnswer;
    exchange.whenOver(() => {
      options.onExchange(exchange);
      connections.answerEnded(exchange);
      place?.requestEnded();
      endTurn(exchange);
    });
    const turn = (alive: boolean): void => {
      if (alive) {
        // Not Fastify's onResponse: that is silent about a caller who hung up and an answer that broke off.
        reply.raw.on('close', () => {
          exchange.closed(reasonOfEnd(connections, exchange));
        });
        decide(exchange, reply, done);
      } else {
        reply.hijack();
        leaveOut(exchange.found);
        exchange.decided();
        exchange.closed();
      }
    };
    awaitTurn(exchange, turn);
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

/** Why the gateway itself closed the connection of a request; null where it did not. */
function reasonOfEnd({ areCutOff }: Connections, { data: { connection } }: Exchange): string | null {
  if (areCutOff) return endOfDrain;
  return connection.place?.isEvicted === true ? evictionDetail : null;
}

/** Takes a request through its steps, and answers it where it is denied. */
function decideWith(sources: StepSources) {
  return (exchange: Exchange, reply: FastifyReply, done: (error?: Error) => void): void => {
    const { data, found } = exchange;
    const goOn = (denial: DenialCode | null): void => {
      if (denial !== null) {
        exchange.outcome = denial;
        if (found.facts !== null) exchange.detail = reasonOf(denial, found.facts, found.credential, timeText);
      } else if (found.credential !== null) data.connection.place?.accepted(found.credential.merchantId, data.hasBody);
      exchange.decided();
      if (denial === null) done();
      else sendFailure(reply, denialFailure(denial));
    };
    const fail = (error: unknown): void => {
      exchange.decided();
      done(error instanceof Error ? error : new Error('something was thrown that is no error', { cause: error }));
    };
    let denial: Eventual<DenialCode | null>;
    try {
      denial = takeSteps(data, found, exchange, sources);
    } catch (error) {
      fail(error);
      return;
    }
    if (denial instanceof Promise) void denial.then(goOn, fail);
    else if (data.hasBody)
      void Promise.resolve(denial).then(goOn); // what came of it together with the headers is read by then
    else goOn(denial);
  };
}
