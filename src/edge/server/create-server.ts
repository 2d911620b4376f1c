import type http from 'node:http';
import type { IncomingHttpHeaders, RequestListener } from 'node:http';
import type { Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { METHODS, Server, ServerResponse, IncomingMessage } from '../../node/http.js';
import type { IpRanges } from '../../policy/ip-ranges.js';
import type { ConnectionLimiter } from '../connections/connection-limiter.js';
import { closeAfterTimeout, type Connections } from '../connections/connections.js';
import { readProxyHeader } from '../connections/proxy-protocol.js';
import { throttledSource } from '../../policy/client-address.js';
import { type ConnectionOrigin } from '../request/connection-facts.js';
import { lingeringClose } from '../response/lingering-close.js';
import { type HandshakeLimits, HandshakeRate } from '../tls/handshake-rate.js';
import { type TlsEndpoint, tlsRefusals } from '../tls/tls-endpoint.js';
import { connectionOf, openConnection, originOf } from '../connections/client-connection.js';

/** Limits of a listener's connections. Sizes are in bytes, times in seconds. */
export interface ConnectionLimits extends HandshakeLimits {
  readonly headerBytes: number;
  readonly targetBytes: number;
  readonly headersTimeoutSeconds: number;
  readonly requestTimeoutSeconds: number;
  readonly answerTimeoutSeconds: number;
  readonly keepAliveTimeoutSeconds: number;
}

/** Reasons for closing a connection before its first request. */
export const refusedConnections = [
  'address_limit',
  'connection_limit',
  'handshake_limit',
  'proxy_header',
  'proxy_untrusted',
  ...tlsRefusals.map((reason) => `tls_${reason}` as const),
] as const;

/** A reason from `refusedConnections`. */
type RefusedConnection = (typeof refusedConnections)[number];

/** Dependencies of a listener's server. */
export interface ServerOptions {
  readonly limits: ConnectionLimits;
  /** The TLS settings of the listener; null if it serves plain HTTP. */
  readonly tls: TlsEndpoint | null;
  /**
   * The only peers that are allowed to connect. Each of their connections must begin with a PROXY protocol header. Null
   * if the listener does not use the PROXY protocol.
   */
  readonly proxyProtocolFrom: IpRanges | null;
  /** Trusted proxies. The connection limit per address does not apply to them, because they carry many clients. */
  readonly trustedProxies: IpRanges;
  readonly connections: Connections;
  readonly limiter: ConnectionLimiter;
  /** Called for each connection that was closed before its first request. */
  readonly onRefusedConnection: (why: RefusedConnection) => void;
}

/**
 * Creates the server of a listener. On each connection, an optional PROXY protocol header and an optional TLS
 * handshake precede HTTP/1.1. A single HTTP server accepts the TCP connections, and handles the HTTP requests after
 * these steps. HTTP/2 is not offered, because Node silently drops HTTP/2 header fields with invalid values. A proxy in
 * front of the gateway can offer HTTP/2 to its clients.
 */
export function createServer(handler: http.RequestListener, options: ServerOptions): http.Server {
  const { limits, tls, connections, onRefusedConnection } = options;
  const server = createHttpServer(handler, limits, (socket) => {
    connections.opened(socket);
    // Without an 'error' listener, a socket error would end the process. Nothing is done here, because Node then emits
    // 'close', and the code that uses the socket handles that event.
    socket.on('error', () => undefined);
    admit(socket, options, start);
  });
  const startHttp1 = (socket: Socket, origin: ConnectionOrigin, bufferedBytes: number): void => {
    connections.ready(openConnection(socket, origin, bufferedBytes));
    server.serve(socket);
  };
  const handshakes = new HandshakeRate(limits, options.trustedProxies);
  const startTls = tls?.accept({
    onSecure: (socket: TLSSocket, origin) => {
      if (origin.place !== null) origin.place.socket = socket;
      if (socket.isSessionReused()) handshakes.giveBack(origin.remote);
      startHttp1(socket, origin, 0);
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
    } else startHttp1(socket, origin, bufferedBytes);
  };
  return server;
}

/** Node's HTTP server, except that `guard` gets each accepted connection before HTTP starts. */
class GuardedServer extends Server {
  readonly #guard: (socket: Socket) => void;

  /** @param guard receives each accepted connection */
  constructor(guard: (socket: Socket) => void, options: http.ServerOptions, serve: http.RequestListener) {
    super(options, serve);
    this.#guard = guard;
  }

  /** Starts HTTP on a connection. Emitting 'connection' is Node's documented way to pass a socket to an HTTP server. */
  serve(socket: Socket): void {
    super.emit('connection', socket);
  }

  override emit(event: string, ...values: unknown[]): boolean {
    const [socket] = values;
    if (event !== 'connection') return super.emit(event, ...values);
    this.#guard(socket as Socket);
    return true;
  }
}

/**
 * Admits a connection that is within the limits per source and per listener, and whose PROXY header, if required, is
 * valid. A source is an IPv4 address or an IPv6 /64.
 */
function admit(
  socket: Socket,
  { limits, proxyProtocolFrom, trustedProxies, limiter, onRefusedConnection }: ServerOptions,
  start: (socket: Socket, origin: ConnectionOrigin, bufferedBytes: number) => void,
): void {
  const refuse = (why: RefusedConnection): void => {
    socket.destroy();
    onRefusedConnection(why);
  };

  const { remote, port } = originOf(socket);
  if (remote === null) {
    // The peer closed before the accept, as the health checks of some load balancers do.
    socket.destroy();
    return;
  }
  // Check the peer and its own limit first. Otherwise a connection that is refused anyway could evict another one.
  if (proxyProtocolFrom?.contains(remote) === false) {
    refuse('proxy_untrusted');
    return;
  }
  const source = throttledSource(remote, trustedProxies);
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
    start(socket, { remote, via: 'peer', port, mayForward: true, place }, 0);
    return;
  }
  readProxyHeader(socket, limits.headersTimeoutSeconds * 1000, {
    onHeader: (named, bufferedBytes) => {
      const behind = throttledSource(named?.address ?? null, trustedProxies);
      if (behind !== null && limiter.isFull(behind)) {
        refuse('address_limit');
        return;
      }
      if (behind !== null) place.countFor(behind);
      const from = named === null ? { remote, port } : { remote: named.address, port: named.port };
      const via = named === null ? 'peer' : 'proxy-protocol';
      start(socket, { ...from, via, mayForward: named !== null, place }, bufferedBytes);
    },
    onRefused: () => {
      onRefusedConnection('proxy_header');
    },
  });
}

function createHttpServer(
  handler: http.RequestListener,
  limits: ConnectionLimits,
  guard: (socket: Socket) => void,
): GuardedServer {
  const serve: http.RequestListener = (request, response) => {
    request.method = servedMethod(request.method);
    handler(request, response);
  };
  const server = new GuardedServer(
    guard,
    {
      IncomingMessage: LeanRequest,
      // Node has one limit for target and headers together, so set it to the sum. protocol.ts checks both limits.
      maxHeaderSize: limits.headerBytes + limits.targetBytes,
      headersTimeout: limits.headersTimeoutSeconds * 1000,
      requestTimeout: limits.requestTimeoutSeconds * 1000,
      keepAliveTimeout: limits.keepAliveTimeoutSeconds * 1000,
      connectionsCheckingInterval: 1000, // with Node's default of 30 s, a 10 s timeout could take up to 40 s
      requireHostHeader: false, // protocol.ts checks Host, because Node's own 400 lacks the gateway's error body
    },
    serve,
  );
  // 0: do not limit the number of headers, because Node would silently drop those above the limit. `maxHeaderSize`
  // limits the bytes of all headers.
  server.maxHeadersCount = 0;
  // On a timeout, Node would by default close the connection without reading a request that has already arrived.
  server.on('timeout', closeAfterTimeout);
  // By default, Node would send 100 Continue before the gateway has checked the API key.
  server.on('checkContinue', serve);
  server.on('checkExpectation', serve);
  // Without a 'connect' listener, Node closes the connection of a CONNECT request without a response.
  server.on('connect', (request) => {
    serveConnect(request, handler);
  });
  return server;
}

const nodeMethods: ReadonlySet<string | undefined> = new Set(METHODS);
const unproxiedMethod = 'TRACE';

/**
 * Returns the method to route by. Methods that Node does not list, such as those of RTSP, become TRACE, which the
 * gateway never proxies. Otherwise Fastify would respond to these methods without running any hook.
 */
function servedMethod(method: string | undefined): string {
  return method !== undefined && nodeMethods.has(method) ? method : unproxiedMethod;
}

/**
 * Serves a CONNECT request like any other request, so it never opens a tunnel. Node passes only a bare socket, which an
 * earlier response could be using. A second response on that socket would throw and end the process, so the CONNECT
 * waits for the earlier request.
 */
function serveConnect(request: http.IncomingMessage, handler: RequestListener): void {
  const previous = connectionOf(request.socket).newest;
  if (previous === null) serve(request, handler);
  else
    previous.whenOver(() => {
      serve(request, handler);
    });
}

function serve(request: http.IncomingMessage, handler: RequestListener): void {
  const { socket } = request;
  const response = new ServerResponse(request);
  response.shouldKeepAlive = false;
  // If the previous response was the last of this connection, the request gets no socket, so it is only logged.
  if (socket.writable && !connectionOf(socket).isFull) {
    response.assignSocket(socket);
    // Node emits 'close' only for responses that it created itself, so emit it here.
    const end = (): void => {
      response.emit('close');
      lingeringClose(socket); // Node no longer handles this socket, so the gateway must read and close it
    };
    response.once('finish', end);
    socket.once('close', end);
  }
  handler(request, response);
}

const noHeaders: IncomingHttpHeaders = Object.freeze({});

/**
 * An incoming request that differs from Node's in two ways:
 * - `headers` is filled only for a request with an Expect header. Building `headers` takes 3 % of the cost of a 401.
 *   The gateway reads `rawHeaders`, because Node's `headers` join or drop repeated fields. Node itself needs `headers`
 *   only for Expect. Fastify derives from `headers` only a value that the gateway does not use.
 * - An aborted request emits 'close' and never 'error'. Node checks for an 'error' listener one tick before it emits
 *   the event. If the listener is removed in between, the 'error' would end the process.
 */
export class LeanRequest extends IncomingMessage {
  override _destroy(error: Error | null, closed: (error?: Error | null) => void): void {
    super._destroy(error, () => {
      closed();
    });
  }
}

Object.defineProperty(LeanRequest.prototype, 'headers', {
  get(this: LeanRequest): unknown {
    return hasExpect(this.rawHeaders) ? Reflect.get(IncomingMessage.prototype, 'headers', this) : noHeaders;
  },
});

function hasExpect(rawHeaders: readonly string[]): boolean {
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = rawHeaders[index] ?? '';
    if (name.length === 6 && name.toLowerCase() === 'expect') return true;
  }
  return false;
}
