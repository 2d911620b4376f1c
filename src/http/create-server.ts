import type http from 'node:http';
import type { Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { createServer as createNodeServer } from '../node/http.js';
import type { IpRanges } from '../policy/ip-ranges.js';
import { serveConnect } from './connect-requests.js';
import { noteConnection, originOf } from './connection-facts.js';
import type { ConnectionOrigin } from './connection-facts.js';
import { ConnectionsPerAddress } from './connections-per-address.js';
import type { Connections } from './connections.js';
import { servedMethod } from './known-method.js';
import { LeanRequest } from './lean-request.js';
import { readProxyHeader } from './proxy-protocol/read-header.js';
import type { TlsEndpoint } from './tls/tls-endpoint.js';
import { tlsRefusals } from './tls/tls-refusal.js';

/** Limits of a listener's connections. */
export interface ConnectionLimits {
  readonly headerBytes: number;
  readonly targetBytes: number;
  readonly headersTimeoutSeconds: number;
  readonly requestTimeoutSeconds: number;
  readonly answerTimeoutSeconds: number;
  readonly keepAliveTimeoutSeconds: number;
  readonly connections: number;
  readonly connectionsPerAddress: number;
}

/** Why a connection was closed before it could carry a request, or in the middle of too many. */
export const refusedConnections = [
  'address_limit',
  'connection_limit',
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
  readonly onRefusedConnection: (why: RefusedConnection) => void;
}

/**
 * Makes the server of a listener: TCP, an optional PROXY protocol header, optional TLS, then HTTP/1.1. One HTTP server listens
 * for all of that, so that its limits count each connection from its first packet. It sees a connection only when the steps
 * before HTTP are done. HTTP/2 is left to proxies in front: Node's drops header fields with invalid values without notice.
 */
export function createServer(handler: http.RequestListener, options: ServerOptions): http.Server {
  const { limits, tls, proxyProtocolFrom, connections, onRefusedConnection } = options;
  const server = createHttpServer(handler, limits);
  const headersTimeout = limits.headersTimeoutSeconds * 1000;

  const [serveHttp1] = server.listeners('connection') as [(this: http.Server, socket: Socket) => void];
  server.removeAllListeners('connection');
  const startHttp1 = (socket: Socket, bufferedBytes: number): void => {
    connections.ready(socket, bufferedBytes);
    serveHttp1.call(server, socket);
  };
  const startTls = tls?.accept({
    onSecure: (socket: TLSSocket, origin) => {
      noteConnection(socket, origin);
      startHttp1(socket, 0);
    },
    onRefused: (reason) => {
      onRefusedConnection(`tls_${reason}`);
    },
  });
  const perAddress = new ConnectionsPerAddress(limits.connectionsPerAddress, options.trustedProxies);
  const start = (socket: Socket, origin: ConnectionOrigin, bufferedBytes: number): void => {
    if (!perAddress.take(socket, origin.remote)) {
      socket.destroy();
      onRefusedConnection('address_limit');
    } else if (startTls !== undefined) startTls(socket, origin);
    else {
      noteConnection(socket, origin);
      startHttp1(socket, bufferedBytes);
    }
  };
  server.on('connection', (socket: Socket) => {
    connections.opened(socket);
    socket.on('error', () => undefined); // whoever reads it hears of its end; while nobody does, it would end the process
    const own = originOf(socket);
    if (proxyProtocolFrom === null) {
      start(socket, own, 0);
    } else if (own.remote === null) {
      socket.destroy(); // gone before it was accepted, as the health checks of some balancers are
    } else if (!proxyProtocolFrom.contains(own.remote)) {
      socket.destroy();
      onRefusedConnection('proxy_untrusted');
    } else {
      readProxyHeader(socket, headersTimeout, {
        onHeader: (source, bufferedBytes) => {
          const origin = source === null ? { ...own, mayForward: false } : { remote: source, mayForward: true };
          start(socket, origin, bufferedBytes);
        },
        onRefused: () => {
          onRefusedConnection('proxy_header');
        },
      });
    }
  });
  server.on('drop', () => {
    onRefusedConnection('connection_limit');
  });
  return server;
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
  server.maxConnections = limits.connections;
  // The default would ask for the body before anybody has looked at the key.
  server.on('checkContinue', serve);
  server.on('checkExpectation', serve);
  // Without a listener Node would close the connection without an answer.
  server.on('connect', (request) => {
    serveConnect(request, handler);
  });
  return server;
}
