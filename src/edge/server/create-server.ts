import type http from 'node:http';
import type { IncomingHttpHeaders, RequestListener } from 'node:http';
import type { Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { METHODS, Server, ServerResponse, IncomingMessage } from '../../node/http.js';
import type { IpAddress } from '../../policy/ip-address.js';
import type { IpRanges } from '../../policy/ip-ranges.js';
import type { ConnectionLimiter } from '../connections/connection-limiter.js';
import type { Connections } from '../connections/connections.js';
import { readProxyHeader } from '../connections/proxy-protocol.js';
import { sourceOf } from '../request/client-address.js';
import { type ConnectionOrigin, noteConnection, originOf } from '../request/connection-facts.js';
import { lingeringClose } from '../response/lingering-close.js';
import { type HandshakeLimits, HandshakeRate } from '../tls/handshake-rate.js';
import { type TlsEndpoint, tlsRefusals } from '../tls/tls-endpoint.js';
import { newestExchange } from '../connections/pipeline.js';

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
  const server = createHttpServer(handler, limits, (socket) => {
    connections.opened(socket);
    socket.on('error', () => undefined); // whoever reads it hears of its end; while nobody does, it would end the process
    admit(socket, options, start);
  });
  const startHttp1 = (socket: Socket, bufferedBytes: number): void => {
    connections.ready(socket, bufferedBytes);
    server.serve(socket);
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
  return server;
}

/** Node's HTTP server behind a door: what is done before HTTP has each new connection first. */
class GuardedServer extends Server {
  readonly #guard: (socket: Socket) => void;

  /** @param guard gets each connection when it is open */
  constructor(guard: (socket: Socket) => void, options: http.ServerOptions, serve: http.RequestListener) {
    super(options, serve);
    this.#guard = guard;
  }

  /** Lets a connection carry requests. Node says of this event that it may be emitted to bring a connection in. */
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
  const sourceIn = (remote: IpAddress): string | null => (trustedProxies.contains(remote) ? null : sourceOf(remote));

  const { remote, port } = originOf(socket);
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
    start(socket, { remote, port, mayForward: true, place }, 0);
    return;
  }
  readProxyHeader(socket, limits.headersTimeoutSeconds * 1000, {
    onHeader: (named, bufferedBytes) => {
      const behind = named && sourceIn(named.address);
      if (behind !== null && limiter.isFull(behind)) {
        refuse('address_limit');
        return;
      }
      if (behind !== null) place.countFor(behind);
      const from = named === null ? { remote, port } : { remote: named.address, port: named.port };
      start(socket, { ...from, mayForward: named !== null, place }, bufferedBytes);
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

const known: ReadonlySet<string | undefined> = new Set(METHODS);
const unproxiedMethod = 'TRACE';

/**
 * The method as which a request is served. One that Node does not list, such as those of RTSP, is
 * served as one that is not proxied: Fastify would answer it itself, outside of every hook.
 */
function servedMethod(method: string | undefined): string {
  return method !== undefined && known.has(method) ? method : unproxiedMethod;
}

/**
 * Has a CONNECT request served as any other one, which never makes a tunnel of it. Node hands it over with its bare
 * socket and without a response, and does so at once: also while a request before it is still owed its answer, whose
 * response has that socket. Taking it away then would be an exception that ends the process.
 */
function serveConnect(request: http.IncomingMessage, handler: RequestListener): void {
  const previous = newestExchange(request.socket);
  if (previous === null) serve(request, handler);
  else
    previous.whenOver(() => {
      serve(request, handler);
    });
}

function serve(request: http.IncomingMessage, handler: RequestListener): void {
  const { socket } = request;
  if (!socket.writable) return; // the answer before was the last one of its connection
  const response = new ServerResponse(request);
  response.shouldKeepAlive = false;
  response.assignSocket(socket);
  // Node tells the end of the responses that it made itself; of this one it does not know.
  const end = (): void => {
    response.emit('close');
    lingeringClose(socket); // Node no longer handles this socket, so it has to be read and closed here
  };
  response.once('finish', end);
  socket.once('close', end);
  handler(request, response);
}

const none: IncomingHttpHeaders = Object.freeze({});

/**
 * A request as the gateway uses it.
 * - Its `headers` are empty but where it has an Expect. Node and Fastify ask each request for them, Node about Expect (and about
 *   Host, where its server has `requireHostHeader`), Fastify about a Connection that it does nothing with here, and to make
 *   them is 3 % of what a 401 costs. The gateway reads `rawHeaders`: Node's `headers` join or drop what is there twice.
 * - One that breaks off is closed, and never an 'error'. Node looks whether somebody listens for that, and emits it a tick later:
 *   where whoever listened is done by then, it would end the process.
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
    return hasExpect(this.rawHeaders) ? Reflect.get(IncomingMessage.prototype, 'headers', this) : none;
  },
});

function hasExpect(rawHeaders: readonly string[]): boolean {
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = rawHeaders[index] ?? '';
    if (name.length === 6 && name.toLowerCase() === 'expect') return true;
  }
  return false;
}
