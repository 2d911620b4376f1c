import type { Socket } from 'node:net';
import { buildConnector } from '../../undici/undici.js';
import type { Connector } from '../../undici/undici.js';
import { atEndOfTurn } from '../end-of-turn.js';
import type { AnswerReader } from './answer-reader.js';
import { Connection } from './connection.js';
import type { WireRequest } from './connection.js';
import { sharedLookup } from './shared-lookup.js';

/** How an upstream is connected to. */
export interface PoolOptions {
  /** `http://host:port` or `https://host:port`. */
  readonly origin: URL;
  readonly connectMilliseconds: number;
  readonly maxConnections: number;
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
/** Nobody else waits longer for a connection that was opened for a caller who has left: it may never open. */
const patienceMilliseconds = 1_000;
/** All connections read into this one, one after the other: what is kept of it is copied. */
const readBuffer = Buffer.allocUnsafeSlow(65_536);

/** The connections to one upstream. */
export class ConnectionPool {
  readonly #options: PoolOptions;
  readonly #connector: Connector;
  readonly #connections = new Set<Connection>();
  /** The one that was used last is the next one to be used: the others may close. */
  readonly #idle: Connection[] = [];
  /** Those whose answer was read in this turn. Where the end of such a connection came right behind, only the next turn reads it. */
  readonly #resting: Connection[] = [];
  #waiting: Waiting[] = [];
  readonly #opening = new Set<Opening>();
  #isDestroyed = false;
  #isDue = false;
  readonly #sweep: NodeJS.Timeout;
  #onClosed: (() => void) | null = null;

  constructor(options: PoolOptions) {
    this.#options = options;
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
      for (const idle of this.#idle.filter((each) => each.isStale(now)))
        idle.destroy(new Error('it was idle for too long'));
    }, sweepMilliseconds).unref();
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
    for (const next of this.#waiting.splice(0)) {
      if (next.reader.isSettled) continue;
      const connection = next.openedSince === null ? this.#takeIdle(now) : this.#takeNew(next.openedSince, now);
      if (connection === null) this.#waiting.push(next);
      else connection.carry(next.request, next.reader);
    }
    const rested = this.#resting.splice(0);
    this.#idle.push(...rested);
    // More are opened also for those that a rested one carries in the next turn: with some to spare, each rests for longer.
    const { maxConnections } = this.#options;
    while (this.#connections.size + this.#opening.size < maxConnections) {
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

  #takeIdle(now: number): Connection | null {
    for (let connection = this.#idle.pop(); connection !== undefined; connection = this.#idle.pop()) {
      if (!connection.isStale(now)) return connection;
      connection.destroy(new Error('it was idle for too long'));
    }
    return null;
  }

  #takeNew(openedSince: number, now: number): Connection | null {
    const index = this.#idle.findIndex((idle) => idle.openedAt >= openedSince && !idle.isStale(now));
    return this.#idle.splice(index, index < 0 ? 0 : 1)[0] ?? null;
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
    const connection = new Connection(socket, {
      onIdle: (idle) => {
        this.#resting.push(idle);
        this.#serveSoon();
      },
      onClose: (closed) => {
        this.#connections.delete(closed);
        this.#forget(closed);
        this.#serveSoon();
      },
    });
    this.#connections.add(connection);
    connectionOf.set(socket, connection);
    this.#idle.push(connection);
  }

  #forget(connection: Connection): void {
    for (const list of [this.#idle, this.#resting]) {
      const index = list.indexOf(connection);
      if (index >= 0) list.splice(index, 1);
    }
  }

  #endIfClosed(): void {
    if (this.#onClosed === null) return;
    if (this.#waiting.length > 0) return;
    for (const connection of this.#idle.splice(0)) connection.destroy(new Error('the gateway is closing'));
    // One that is still being opened when everything is cut off is closed as soon as it is open.
    if (this.#connections.size === 0 && (this.#opening.size === 0 || this.#isDestroyed)) this.#onClosed();
  }
}
