/*
 * Entry point of the HTTP/1.1 client (RFC 9112), which does not depend on the gateway. undici 7 is unsuitable for a
 * gateway whose connections serve several merchants:
 * - It fails on a 304 with Content-Length, so the client would get a 502.
 * - It reuses a connection after a 204 with a chunked body, so the next merchant would read that body.
 * - It accepts the transfer coding `chunked, gzip`.
 * - It loses a response sent before the service has read the request body, such as a 413.
 */
import dns from 'node:dns';
import type { LookupFunction, Socket } from 'node:net';
import { buildConnector } from 'undici';
import { atEndOfTurn } from '../../node/end-of-turn.js';
import type { ResponseReader } from './response-reader.js';
import { Connection, type WireRequest } from './connection.js';
import { IdleConnections, type IdleOptions } from './idle-connections.js';

/** Settings for the connections to an upstream. */
export interface PoolOptions extends IdleOptions {
  /** Origin of the upstream: `http://host:port` or `https://host:port`. */
  readonly origin: URL;
  readonly connectMilliseconds: number;
  /** Maximum number of connections. Idle connections that are bound (reserved) to a merchant do not count. */
  readonly maxConnections: number;
  /**
   * Whether the service reads every request body. If so, a connection that has carried a body can serve any merchant.
   */
  readonly readsBodies: boolean;
  /** Called when the service sends bytes although no request is pending. */
  readonly onUnsolicited: () => void;
  /** PEM of the CA that signed the upstream's certificate; null for Node's default CAs. */
  readonly ca: Buffer | null;
}

interface Waiting {
  readonly request: WireRequest;
  readonly reader: ResponseReader;
  /** Earliest `openedAt` of a connection that the request can use; null if it can use any connection. */
  readonly openedSince: number | null;
}

/** A connection that is being established. */
interface Opening {
  /** The request that triggered the connect. If the connect fails while this request still waits, the request fails. */
  readonly first: Waiting;
  readonly since: number;
}

const connectionOf = new WeakMap<object, Connection>();
const sweepMilliseconds = 1_000;
/** At least this many connections can rest (stay unused for a short time after a response), however few are in use. */
const leastResting = 16;
/**
 * If at least this many requests wait in one event loop turn, idle connections are reused without a rest. With rests,
 * the pool would need up to twice as many connections as are in use.
 */
const fullTurn = 8;
/** How long no connection is reused after the service has sent bytes while no request was pending. */
const distrustMilliseconds = 60_000;
/**
 * A connect pending for longer than this may never complete. It counts as capacity only while its request waits.
 */
const abandonedConnectMilliseconds = 1_000;
/** Read buffer shared by all connections. Bytes that are used after the read callback must be copied. */
const readBuffer = Buffer.allocUnsafeSlow(65_536);

/** The connections to one upstream. */
export class ConnectionPool {
  readonly #options: PoolOptions;
  readonly #connector: buildConnector.connector;
  readonly #connections = new Set<Connection>();
  readonly #idle: IdleConnections;
  /**
   * Connections whose response ended in this event loop turn. They are reused only in a later turn: if the service
   * closes a connection right after the response, the pool notices the close only in the next turn.
   */
  readonly #resting: Connection[] = [];
  #waiting: Waiting[] = [];
  readonly #opening = new Set<Opening>();
  #isDestroyed = false;
  #isDue = false;
  #distrustedUntil = -Infinity;
  readonly #sweep: NodeJS.Timeout;
  #onClosed: (() => void) | null = null;

  constructor(options: PoolOptions) {
    this.#options = options;
    this.#idle = new IdleConnections(options);
    const { connectMilliseconds, ca } = options;
    this.#connector = buildConnector({
      timeout: connectMilliseconds,
      // Explicit, because defaults differ: @fastify/http-proxy, for example, verifies no certificates by default.
      rejectUnauthorized: true,
      lookup: sharedLookup,
      ...(ca === null ? {} : { ca }),
      onread: {
        buffer: readBuffer,
        callback(this: object, length: number) {
          connectionOf.get(this)?.take(readBuffer.subarray(0, length));
          return true;
        },
      },
    });
    this.#sweep = setInterval(() => {
      const now = performance.now();
      for (const idle of this.#idle.all())
        if (idle.isStale(now)) idle.destroy(new Error('the connection was idle for too long'));
    }, sweepMilliseconds).unref();
  }

  /** Number of idle connections that are bound to (reserved for) one merchant each. */
  get boundIdle(): number {
    return this.#idle.bound;
  }

  /** Whether each connection carries only one request, because the service recently sent unsolicited bytes. */
  get isDistrusted(): boolean {
    return this.#distrustedUntil !== -Infinity && performance.now() < this.#distrustedUntil;
  }

  /**
   * Queues a request, and sends it at the end of the current event loop turn. Until then, the pool reads what has
   * arrived on idle connections. The pool thus reuses no connection that the upstream has closed, or on which the
   * upstream has sent unsolicited bytes.
   * @param onNew whether to use only a connection opened after this call: a service that shuts down closes older ones
   */
  send(request: WireRequest, reader: ResponseReader, onNew: boolean): void {
    if (this.#onClosed !== null) {
      reader.onFailure(new Error('the gateway is closing'));
      return;
    }
    // Queue this request first, because a request that accepts an older connection would otherwise take the new one.
    if (onNew) this.#waiting.unshift({ request, reader, openedSince: performance.now() });
    else this.#waiting.push({ request, reader, openedSince: null });
    this.#serveSoon();
  }

  /** Rejects new requests. Resolves when all requests have ended and all connections are closed. */
  close(): Promise<void> {
    clearInterval(this.#sweep);
    return new Promise((resolve) => {
      this.#onClosed = resolve;
      this.#endIfClosed();
    });
  }

  /** Closes all connections immediately and fails their requests. */
  destroy(): void {
    this.#isDestroyed = true;
    const error = new Error('the gateway is closing');
    for (const { reader } of this.#waiting.splice(0)) reader.onFailure(error);
    for (const connection of [...this.#connections]) connection.destroy(error);
    this.#endIfClosed();
  }

  #serveSoon(): void {
    if (this.#isDue) return;
    this.#isDue = true;
    atEndOfTurn(() => {
      this.#isDue = false;
      this.#serve();
    });
  }

  #serve(): void {
    const now = performance.now();
    const waiting = this.#waiting.splice(0);
    for (const next of waiting) {
      if (next.reader.isSettled) continue;
      const connection = this.#take(next, now, waiting.length);
      if (connection === null) this.#waiting.push(next);
      else {
        if (now < this.#distrustedUntil) connection.retire();
        connection.carry(next.request, next.reader);
      }
    }
    const rested = this.#resting.splice(0);
    for (const connection of rested) this.#idle.add(connection);
    while (this.#mayOpen) {
      const next = this.#waiting[this.#countComing(now)];
      if (next === undefined) break;
      this.#connect({ first: next, since: now });
    }
    if (this.#waiting.length > 0 && rested.length > 0) this.#serveSoon();
    this.#endIfClosed();
  }

  /** Number of pending connects that count as capacity: recent ones, and those whose request (`first`) still waits. */
  #countComing(now: number): number {
    let coming = 0;
    for (const { first, since } of this.#opening) {
      if (now - since < abandonedConnectMilliseconds || this.#waiting.includes(first)) coming += 1;
    }
    return coming;
  }

  /** Whether the limits allow one more connection. */
  get #mayOpen(): boolean {
    return this.#connections.size - this.#idle.bound + this.#opening.size < this.#options.maxConnections;
  }

  /** @param inTurn number of requests that wait in this event loop turn, including those from earlier turns */
  #take({ request: { merchantId }, openedSince }: Waiting, now: number, inTurn: number): Connection | null {
    if (openedSince !== null) return this.#idle.takeOpenedSince(merchantId, openedSince, now);
    // Let as many connections rest as are in use. A connection then rests for about as long as a response takes.
    const inUse = this.#connections.size - this.#idle.size;
    const mayRest = this.#mayOpen && inTurn < fullTurn;
    return this.#idle.take(merchantId, now, mayRest ? Math.max(leastResting, inUse) : 0);
  }

  /**
   * After unsolicited bytes on one connection, closes all idle connections immediately and all busy ones after their
   * response. A busy connection could also have received unsolicited bytes and taken them for a response.
   */
  #distrust(): void {
    this.#distrustedUntil = performance.now() + distrustMilliseconds;
    const error = new Error('the upstream sent bytes without a pending request');
    for (const connection of [...this.#idle.all(), ...this.#resting]) connection.destroy(error);
    for (const connection of this.#connections) connection.retire();
    this.#options.onUnsolicited();
  }

  #connect(opening: Opening): void {
    const { first } = opening;
    this.#opening.add(opening);
    const { hostname, host, protocol, port } = this.#options.origin;
    // In a URL, an IPv6 address has brackets. A socket would try to resolve the brackets as part of a host name.
    const bare = hostname.startsWith('[') ? hostname.slice(1, -1) : hostname;
    this.#connector({ hostname: bare, host, protocol, port }, (error, socket) => {
      this.#opening.delete(opening);
      if (error === null) this.#opened(socket);
      else if (this.#waiting.includes(first)) {
        this.#waiting = this.#waiting.filter((each) => each !== first);
        first.reader.onFailure(error);
      }
      this.#serveSoon();
    });
  }

  #opened(socket: Socket): void {
    const connection = new Connection(socket, this.#options.readsBodies, {
      onIdle: (idle) => {
        this.#resting.push(idle);
        this.#serveSoon();
      },
      onUnsolicited: () => {
        this.#distrust();
      },
      onClose: (closed) => {
        this.#connections.delete(closed);
        this.#idle.remove(closed);
        const resting = this.#resting.indexOf(closed);
        if (resting >= 0) this.#resting.splice(resting, 1);
        this.#serveSoon();
      },
    });
    this.#connections.add(connection);
    connectionOf.set(socket, connection);
    this.#idle.add(connection);
  }

  #endIfClosed(): void {
    if (this.#onClosed === null) return;
    if (this.#waiting.length > 0) return;
    for (const connection of this.#idle.all()) connection.destroy(new Error('the gateway is closing'));
    // After `destroy`, do not wait for pending connects. They are closed as soon as they complete.
    if (this.#connections.size === 0 && (this.#opening.size === 0 || this.#isDestroyed)) this.#onClosed();
  }
}

type LookupCallback = Parameters<LookupFunction>[2];

/**
 * Shares one DNS look-up per name among concurrent connects. Otherwise look-ups of a single name whose DNS server hangs
 * could occupy all of Node's DNS threads.
 */
export function shareLookups(lookup: LookupFunction): LookupFunction {
  const asking = new Map<string, LookupCallback[]>();
  return (hostname, options, callback) => {
    const { family, hints, all, order, verbatim } = options;
    const question = JSON.stringify([hostname, family, hints, all, order, verbatim]);
    const others = asking.get(question);
    if (others !== undefined) {
      others.push(callback);
      return;
    }
    const callbacks = [callback];
    asking.set(question, callbacks);
    lookup(hostname, options, (...result) => {
      asking.delete(question);
      for (const each of callbacks) each(...result);
    });
  };
}

/** DNS look-up for upstreams. Concurrent look-ups of the same name share one query. */
const sharedLookup = shareLookups((hostname, options, callback) => {
  dns.lookup(hostname, options, (error, address, family) => {
    callback(error, address, family);
  });
});
