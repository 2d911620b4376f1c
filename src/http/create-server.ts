import type http from 'node:http';
import type { Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { createServer as createNodeServer } from '../node/http.js';
import type { IpAddress } from '../policy/ip-address.js';
import type { IpRanges } from '../policy/ip-ranges.js';
import { serveConnect } from './connect-requests.js';
import { noteConnection, originOf } from './connection-facts.js';
import type { ConnectionOrigin } from './connection-facts.js';
import type { ConnectionLimiter } from './connections/connection-limiter.js';
import type { Connections } from './connections/connections.js';
import { servedMethod } from './known-method.js';
import { LeanRequest } from './lean-request.js';
import { readProxyHeader } from './proxy-protocol/read-header.js';
import { sourceOf } from './source.js';
import { HandshakeRate } from './tls/handshake-rate.js';
import type { HandshakeLimits } from './tls/handshake-rate.js';
import type { TlsEndpoint } from './tls/tls-endpoint.js';
import { tlsRefusals } from './tls/tls-refusal.js';

/** Limits of a listener's connections. */
export interface ConnectionLimits extends HandshakeLimits {
  readonly headerBytes: number;
  readonly targetBytes: number;
  readonly headersTimeoutSeconds: number;
  readonly requestTimeoutSeconds: number;
  readonly answerTimeoutSeconds: number;
  readonly keepAliveTimeoutSeconds: number;
}

/** Why a connection was closed before it could carry a request, or in the middle of too many. */
export const refusedConnections = [
  'address_limit',
  'connection_limit',
  'handshake_limit',
  'proxy_header',
  'proxy_untrusted',
  ...tlsRefusals.map((reason) => `tls_${reason}` as const),
] as const;

/** One of them. */
export type RefusedConnection = (typeof refusedConnections)[number];

/** What the server of a listener is made of. */
export interface ServerOptions {
  readonly limits: ConnectionLimits;
  /** Null: plain HTTP. */
  readonly tls: TlsEndpoint | null;
  /** The peers that begin each connection with a PROXY protocol header; null where nobody does. */
  readonly proxyProtocolFrom: IpRanges | null;
  /** Whose connections are not counted by address. */
  readonly trustedProxies: IpRanges;
  readonly connections: Connections;
  readonly limiter: ConnectionLimiter;
  readonly onRefusedConnection: (why: RefusedConnection) => void;
}

/**
 * Makes the server of a listener: TCP, an optional PROXY protocol header, optional TLS, then HTTP/1.1. One HTTP server listens
 * for all of that, so that its limits count each connection from its first packet. It sees a connection only when the steps
 * before HTTP are done. HTTP/2 is left to proxies in front: Node's drops header fields with invalid values without notice.
 */
export function createServer(handler: http.RequestListener, options: ServerOptions): http.Server {
  const { limits, tls, connections, onRefusedConnection } = options;
  const server = createHttpServer(handler, limits);

  const [serveHttp1] = server.listeners('connection') as [(this: http.Server, socket: Socket) => void];
  server.removeAllListeners('connection');
  const startHttp1 = (socket: Socket, bufferedBytes: number): void => {
    connections.ready(socket, bufferedBytes);
    serveHttp1.call(server, socket);
  };
  const handshakes = new HandshakeRate(limits, options.trustedProxies);
  const startTls = tls?.accept({
    onSecure: (socket: TLSSocket, origin) => {
      if (origin.place !== null) origin.place.socket = socket;
      if (socket.isSessionReused()) handshakes.giveBack(origin.remote);
      noteConnection(socket, origin);
      startHttp1(socket, 0);
    },
    onRefused: (reason) => {
      onRefusedConnection(`tls_${reason}`);
    },
  });
  const start = (socket: Socket, origin: ConnectionOrigin, bufferedBytes: number): void => {
    if (startTls !== undefined) {
      handshakes.admit(socket, origin.remote, limits.headersTimeoutSeconds * 1000, (isAdmitted) => {
        if (isAdmitted) startTls(socket, origin);
        else {
          socket.destroy();
          onRefusedConnection('handshake_limit');
        }
      });
    } else {
      noteConnection(socket, origin);
      startHttp1(socket, bufferedBytes);
    }
  };
  server.on('connection', (socket: Socket) => {
    connections.opened(socket);
    socket.on('error', () => undefined); // whoever reads it hears of its end; while nobody does, it would end the process
    admit(socket, options, start);
  });
  return server;
}

/** Has a connection begin where its source and its listener have room for it, and its PROXY header, if it needs one, is good. */
function admit(
  socket: Socket,
  { limits, proxyProtocolFrom, trustedProxies, limiter, onRefusedConnection }: ServerOptions,
  start: (socket: Socket, origin: ConnectionOrigin, bufferedBytes: number) => void,
): void {
  const refuse = (why: RefusedConnection): void => {
    socket.destroy();
    onRefusedConnection(why);
  };
  /** Trusted proxies speak for many callers, and are no source. */
  const sourceIn = (remote: IpAddress | null): string | null =>
    remote === null || trustedProxies.contains(remote) ? null : sourceOf(remote);

  const { remote } = originOf(socket);
  if (remote === null) {
    socket.destroy(); // gone before it was accepted, as the health checks of some balancers are
    return;
  }
  // What is refused for itself makes no other connection close.
  if (proxyProtocolFrom?.contains(remote) === false) {
    refuse('proxy_untrusted');
    return;
  }
  const source = sourceIn(remote);
  if (source !== null && limiter.isFull(source)) {
    refuse('address_limit');
    return;
  }
  const place = limiter.admit(socket);
  if (place === null) {
    refuse('connection_limit');
    return;
  }
  socket.once('close', () => {
    place.release();
  });
  if (proxyProtocolFrom === null) {
    if (source !== null) place.countFor(source);
    start(socket, { remote, mayForward: true, place }, 0);
    return;
  }
  readProxyHeader(socket, limits.headersTimeoutSeconds * 1000, {
    onHeader: (named, bufferedBytes) => {
      const behind = sourceIn(named);
      if (behind !== null && limiter.isFull(behind)) {
        refuse('address_limit');
        return;
      }
      if (behind !== null) place.countFor(behind);
      start(socket, { remote: named ?? remote, mayForward: named !== null, place }, bufferedBytes);
    },
    onRefused: () => {
      onRefusedConnection('proxy_header');
    },
  });
}

function createHttpServer(handler: http.RequestListener, limits: ConnectionLimits): http.Server {
  const serve: http.RequestListener = (request, response) => {
    request.method = servedMethod(request.method);
    handler(request, response);
  };
  const server = createNodeServer(
    {
      IncomingMessage: LeanRequest,
      // Only protocol.ts can tell a long target from large headers, so it has to see both.
      maxHeaderSize: limits.headerBytes + limits.targetBytes,
      headersTimeout: limits.headersTimeoutSeconds * 1000,
      requestTimeout: limits.requestTimeoutSeconds * 1000,
      keepAliveTimeout: limits.keepAliveTimeoutSeconds * 1000,
      connectionsCheckingInterval: 1000, // Node's default of 30 s would let a slow client have four times its time
      requireHostHeader: false, // checked in protocol.ts: Node's own refusal is not in the envelope
    },
    serve,
  );
  server.maxHeadersCount = 0; // header bytes are limited; a limit of their number would drop a proxy's X-Forwarded-For
  // The default would ask for the body before anybody has looked at the key.
  server.on('checkContinue', serve);
  server.on('checkExpectation', serve);
  // Without a listener Node would close the connection without an answer.
  server.on('connect', (request) => {
    serveConnect(request, handler);
  });
  return server;
}
