/*
 * The entrance of the HTTP/1.1 client (RFC 9112), which knows nothing of the gateway. It exists because of what undici 7 does behind
 * a gateway for many merchants: it responds with 502 to a 304 that has a length, keeps a connection after a 204 with chunks, which the
 * next merchant would read, accepts the coding `chunked, gzip`, and loses a response that a service gives before it has read the
 * request body, such as a 413.
 */
import dns from 'node:dns';
import type { LookupFunction, Socket } from 'node:net';
import { buildConnector } from 'undici';
import { atEndOfTurn } from '../../node/end-of-turn.js';
import type { AnswerReader } from './answer-reader.js';
import { Connection, type WireRequest } from './connection.js';
import { IdleConnections, type IdleOptions } from './idle-connections.js';

/** How an upstream is connected to. */
export interface PoolOptions extends IdleOptions {
  /** `http://host:port` or `https://host:port`. */
  readonly origin: URL;
  readonly connectMilliseconds: number;
  /** Idle ones that are bound to a merchant are not counted. */
  readonly maxConnections: number;
  /** Whether the service reads every request body, so that merchants can share connections behind one. */
  readonly readsBodies: boolean;
  /** Called when the service sent bytes that no request had asked for. */
  readonly onUnsolicited: () => void;
  /** PEM of the authority that signed its certificate; null: those that Node trusts. */
  readonly ca: Buffer | null;
}

interface Waiting {
  readonly request: WireRequest;
  readonly reader: AnswerReader;
  /** No connection may carry it that was opened before; null: any may. */
  readonly openedSince: number | null;
}

/** A connection that is being opened. */
interface Opening {
  /** For whom: who fails where it does, unless another one carries the request by then. */
  readonly first: Waiting;
  readonly since: number;
}

const connectionOf = new WeakMap<object, Connection>();
const sweepMilliseconds = 1_000;
/** How many connections may rest where few are in use. */
const leastResting = 16;
/** A turn of the event loop with so many requests is one under full load: twice as many connections would cost 7 % of a GET. */
const fullTurn = 8;
/** How long each connection carries one request only after a service sent bytes that no request had asked for. */
const distrustMilliseconds = 60_000;
/** Nobody else waits longer for a connection that was opened for a caller who has left: it may never open. */
const patienceMilliseconds = 1_000;
/** All connections read into this one, one after the other: what is kept of it is copied. */
const readBuffer = Buffer.allocUnsafeSlow(65_536);

/** The connections to one upstream. */
export class ConnectionPool {
  readonly #options: PoolOptions;
  readonly #connector: buildConnector.connector;
  readonly #connections = new Set<Connection>();
  readonly #idle: IdleConnections;
  /** Those whose answer was read in this turn. Where the end of such a connection came right behind, only the next turn reads it. */
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
      // Verification is stated, because the default of the proxy plugin is none.
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
      for (const idle of this.#idle.all()) if (idle.isStale(now)) idle.destroy(new Error('it was idle for too long'));
    }, sweepMilliseconds).unref();
  }

  /** How many idle connections are bound to merchants. */
  get boundIdle(): number {
    return this.#idle.bound;
  }

  /** Whether each connection carries one request only, because the service sent bytes that no request had asked for. */
  get isDistrusted(): boolean {
    return this.#distrustedUntil !== -Infinity && performance.now() < this.#distrustedUntil;
  }

  /**
   * Sends a request at the end of the turn, on a connection that has rested for one: everything has been read by then, so that a
   * connection that the upstream has closed, or on which it sent what nobody had asked for, carries none.
   * @param onNew whether on a connection that is opened from now on: a service that is stopped ends all the others
   */
  send(request: WireRequest, reader: AnswerReader, onNew: boolean): void {
    if (this.#onClosed !== null) {
      reader.onFailure(new Error('the gateway is closing'));
      return;
    }
    // In front of the others, who would take a new connection where a kept one would do.
    if (onNew) this.#waiting.unshift({ request, reader, openedSince: performance.now() });
    else this.#waiting.push({ request, reader, openedSince: null });
    this.#serveSoon();
  }

  /** Lets what is under way end, and resolves when no connection is left. */
  close(): Promise<void> {
    clearInterval(this.#sweep);
    return new Promise((resolve) => {
      this.#onClosed = resolve;
      this.#endIfClosed();
    });
  }

  /** Ends every connection, whatever it carries. */
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

  /** How many connections are being opened that somebody who waits can expect to get. */
  #countComing(now: number): number {
    let coming = 0;
    for (const { first, since } of this.#opening) {
      if (now - since < patienceMilliseconds || this.#waiting.includes(first)) coming += 1;
    }
    return coming;
  }

  /** Whether one more connection may be opened. */
  get #mayOpen(): boolean {
    return this.#connections.size - this.#idle.bound + this.#opening.size < this.#options.maxConnections;
  }

  /** @param inTurn how many requests this turn of the event loop has */
  #take({ request: { merchantId }, openedSince }: Waiting, now: number, inTurn: number): Connection | null {
    if (openedSince !== null) return this.#idle.takeOpenedSince(merchantId, openedSince, now);
    // With as many at rest as are in use, each rests for as long as a response takes.
    const inUse = this.#connections.size - this.#idle.size;
    const mayRest = this.#mayOpen && inTurn < fullTurn;
    return this.#idle.take(merchantId, now, mayRest ? Math.max(leastResting, inUse) : 0);
  }

  /** Bytes that nothing had asked for may have stood in front of other responses too: no connection is trusted any longer. */
  #distrust(): void {
    this.#distrustedUntil = performance.now() + distrustMilliseconds;
    const error = new Error('its service sent bytes that no request had asked for');
    for (const connection of [...this.#idle.all(), ...this.#resting]) connection.destroy(error);
    for (const connection of this.#connections) connection.retire();
    this.#options.onUnsolicited();
  }

  #connect(opening: Opening): void {
    const { first } = opening;
    this.#opening.add(opening);
    const { hostname, host, protocol, port } = this.#options.origin;
    // A URL has an IPv6 address in brackets, which a socket takes for a part of a name.
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
    // One that is still being opened when everything is cut off is closed as soon as it is open.
    if (this.#connections.size === 0 && (this.#opening.size === 0 || this.#isDestroyed)) this.#onClosed();
  }
}

type Told = Parameters<LookupFunction>[2];

/** Asks for a name once at a time, however many connect: the few look-ups that run at once may all hang for one name. */
export function shareLookups(lookup: LookupFunction): LookupFunction {
  const asking = new Map<string, Told[]>();
  return (hostname, options, callback) => {
    const { family, hints, all, order, verbatim } = options;
    const question = JSON.stringify([hostname, family, hints, all, order, verbatim]);
    const others = asking.get(question);
    if (others !== undefined) {
      others.push(callback);
      return;
    }
    const told = [callback];
    asking.set(question, told);
    lookup(hostname, options, (...answer) => {
      asking.delete(question);
      for (const each of told) each(...answer);
    });
  };
}

/** The look-ups of this process for upstreams. */
const sharedLookup = shareLookups((hostname, options, callback) => {
  dns.lookup(hostname, options, (error, address, family) => {
    callback(error, address, family);
  });
});
