import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { atEndOfTurn } from '../../node/end-of-turn.js';
import { parseRemoteAddress } from '../../policy/client-address.js';
import type { IpAddress } from '../../policy/ip-address.js';
import { cutAtKey } from '../../telemetry/mask-keys.js';
import { cut, serialise } from '../../telemetry/serialise.js';
import type { ConnectionFacts, ConnectionOrigin, ConnectionPermit } from '../request/connection-facts.js';
import type { Exchange } from '../request/exchange.js';
import { closeAfterResponse, lingeringClose } from '../response/lingering-close.js';

/** Maximum number of pipelined requests that wait on a connection. */
const mostWaiting = 16;
/**
 * Once a client exceeds `mostWaiting`, its waiting and further requests are dropped (not executed). After this number
 * of dropped requests, the connection is closed at once.
 */
const mostDropped = 1_000;

/** `event.reason` in the log line of a request that ended because too many requests after it were dropped. */
export const floodDetail =
  'the gateway closed this connection: the client pipelined too many requests after this request';

/**
 * An overlong line of a request head, before the end of the line has arrived. `bytes` is the number of bytes of the
 * line that were dropped so far. `tail` contains the last characters of these bytes.
 */
interface UnfinishedLine {
  readonly bytes: number;
  readonly tail: string;
}

/**
 * A connection on which a client sends HTTP/1.1 requests: its facts, and all state that outlives a single request. One
 * object exists for each connection.
 */
export class ClientConnection implements ConnectionFacts {
  readonly socket: Socket;
  readonly remote: IpAddress | null;
  readonly via: ConnectionFacts['via'];
  readonly port: number | null;
  readonly mayForward: boolean;
  readonly place: ConnectionPermit | null;
  readonly tls: string | null;
  usedFirstLookup = false;
  /** Whether an error of Node's HTTP parser on this connection has been reported. Later parser errors are ignored. */
  hasRefused = false;
  /**
   * The request line or header line that exceeds the parser's limit, if the end of the line has not arrived yet;
   * otherwise null.
   */
  unfinishedLine: UnfinishedLine | null = null;
  /** `bytesRead` of the socket before the first byte of the first request. */
  readonly #bytesBefore: number;
  /** The last request received. Null before the first request, and after `endTurn` or a close has cleared it. */
  #newest: Exchange | null = null;
  /** The request in progress, or the last executed one; see `current`. */
  #current: Exchange | null = null;
  #waiting = 0;
  /** Whether too many requests were pipelined. If so, no request after the current one is executed. */
  #isFull = false;
  #isStopping = false;
  #dropped = 0;

  /** @param bufferedBytes number of bytes of the first request that have already been read from the socket */
  constructor(socket: Socket, origin: ConnectionOrigin, bufferedBytes: number) {
    this.socket = socket;
    this.remote = origin.remote;
    this.via = origin.via;
    this.port = origin.port;
    this.mayForward = origin.mayForward;
    this.place = origin.place;
    this.tls = tlsFactsOf(socket);
    this.#bytesBefore = socket.bytesRead - bufferedBytes;
    // Clear these references on close, because the WeakMap `known` retains this object until a full garbage collection,
    // even if the socket is unreachable.
    socket.once('close', () => {
      this.#newest = null;
      this.#current = null;
    });
  }

  /** Whether at least one byte of a request was received. */
  get hasAsked(): boolean {
    return this.socket.bytesRead !== this.#bytesBefore;
  }

  /** Whether too many requests were pipelined. If so, no request after the current one is executed. */
  get isFull(): boolean {
    return this.#isFull;
  }

  /** The last request received. Null before the first request, and after `endTurn` or a close has cleared it. */
  get newest(): Exchange | null {
    return this.#newest;
  }

  /**
   * The request in progress. If no request is in progress, the last executed request. Null before the first request,
   * after `endTurn` has cleared the field, and after the connection has closed.
   */
  get current(): Exchange | null {
    return this.#current;
  }

  /** Whether so many requests were dropped that the connection was closed at once. */
  get isFlooded(): boolean {
    return this.#dropped > mostDropped;
  }

  /**
   * Executes the requests of the connection one after the other. Node dispatches a pipelined request immediately and
   * delays only its response. If the connection breaks during this delay, Node emits no event for the request. A
   * request that was executed at once would then never be logged, and would never release its permit (slot for a
   * request in flight at the upstream).
   * If too many requests wait, the connection closes, but only after the current response, because that response could
   * confirm a payout. Further requests are dropped, because each waiting request costs memory, and the recursive
   * callbacks at the end of a long queue would overflow the stack.
   * @param turn called when all earlier requests have ended. If `alive` is false, no response can be sent, so the
   *   request must not be executed (RFC 9112 9.6).
   */
  awaitTurn(exchange: Exchange, turn: (alive: boolean) => void): void {
    const previous = this.#newest;
    if (previous !== null && !previous.over && (this.#isFull || this.#waiting === mostWaiting)) {
      this.#refuseToWait(turn);
      return;
    }
    this.#newest = exchange;
    if (previous === null || previous.over) {
      this.#begin(exchange, turn);
      return;
    }
    this.#waiting += 1;
    previous.whenOver(() => {
      this.#waiting -= 1;
      this.#begin(exchange, turn);
    });
  }

  /**
   * Drops the reference to a finished request that was read completely and whose connection stays open. Otherwise each
   * of thousands of idle connections would retain all data of its last request.
   */
  endTurn(exchange: Exchange): void {
    if (!exchange.request.complete || !exchange.response.shouldKeepAlive) return;
    if (this.#current === exchange) this.#current = null;
    if (this.#newest === exchange) this.#newest = null;
  }

  #begin(exchange: Exchange, turn: (alive: boolean) => void): void {
    const isAlive = !this.#isFull && exchange.response.socket !== null && this.socket.writable;
    if (isAlive) this.#current = exchange;
    else this.#drop();
    turn(isAlive);
  }

  #refuseToWait(turn: (alive: boolean) => void): void {
    if (!this.#isFull && this.#current !== null) closeAfterCurrentResponse(this.#current);
    this.#isFull = true;
    this.#drop();
    if (!this.#isStopping) {
      this.#isStopping = true;
      // Stop reading until the current request has ended. A pause now would have no effect, because Node resumes the
      // socket after each request that it has read.
      atEndOfTurn(() => {
        this.#isStopping = false;
        if (this.#current?.over === false) this.socket.pause();
      });
    }
    turn(false);
  }

  #drop(): void {
    this.#dropped += 1;
    if (this.isFlooded) this.socket.destroy();
  }
}

const known = new WeakMap<Socket, ClientConnection>();

/**
 * Creates the `ClientConnection` of a socket. Called before the first request, because the object must keep facts that
 * a closed socket no longer has, such as addresses.
 * @param bufferedBytes number of bytes of the first request that have already been read from the socket
 */
export function openConnection(socket: Socket, origin: ConnectionOrigin, bufferedBytes: number): ClientConnection {
  const connection = new ClientConnection(socket, origin, bufferedBytes);
  known.set(socket, connection);
  return connection;
}

/**
 * Returns the `ClientConnection` of a socket. Creates it for a socket without one, such as a socket of the management
 * listener.
 */
export function connectionOf(socket: Socket): ClientConnection {
  return known.get(socket) ?? openConnection(socket, originOf(socket), 0);
}

/**
 * Closes the connection after the response to this request, even if the head of the response has already promised
 * keep-alive.
 */
export function closeAfterCurrentResponse(exchange: Exchange): void {
  const { response, request } = exchange;
  const { socket } = request;
  if (response.headersSent) {
    exchange.whenOver(() => {
      lingeringClose(socket);
    });
    response.shouldKeepAlive = false;
  } else closeAfterResponse(exchange);
  exchange.whenOver(() => socket.resume());
}

/** Returns the origin of a connection without a PROXY header. */
export function originOf(socket: Socket): ConnectionOrigin {
  const remote = parseRemoteAddress(socket.remoteAddress);
  return { remote, via: 'peer', port: socket.remotePort ?? null, mayForward: true, place: null };
}

/** Returns `ConnectionFacts.tls`: the result of the TLS handshake as JSON with ECS field names; null without TLS. */
function tlsFactsOf(socket: Socket): string | null {
  if (!(socket instanceof TLSSocket)) return null;
  const certificate = socket.getPeerX509Certificate();
  const client = certificate && {
    subject: cutAtKey(cut(certificate.subject.replaceAll('\n', ', '))),
    hash: { sha256: certificate.fingerprint256.replaceAll(':', '') },
  };
  // ECS expects only the version number: `1.3` for `TLSv1.3`.
  const version = socket.getProtocol()?.replace('TLSv', '');
  return serialise({ version, version_protocol: 'tls', cipher: socket.getCipher().name, client });
}
