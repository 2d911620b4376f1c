import type { Socket } from 'node:net';
import { setImmediate } from 'node:timers/promises';
import { atEndOfTurn } from '../../node/end-of-turn.js';
import { abortResponse } from '../response/lingering-close.js';
import type { Exchange } from '../request/exchange.js';
import { type ClientConnection, connectionOf } from './client-connection.js';

/** A member of a `MemberList`: a value, and when it was added, in `performance.now()` milliseconds. */
interface Since<Value> {
  readonly value: Value;
  readonly at: number;
}

/**
 * How long to wait for a client's next request during shutdown, in milliseconds. The client could be about to send a
 * request, and an immediate close would reset the connection. The wait starts when the connection is accepted, when its
 * TLS handshake is complete, or when a response that promised keep-alive has ended.
 */
const nextRequestMilliseconds = 1_000;

/**
 * Tracks the connections of one listener, to close them at shutdown. Node itself closes only connections that are idle
 * after a request. It would wait for connections without any request, and for TLS handshakes that never finish.
 */
export class Connections {
  readonly #open = new MemberList<Since<Socket>>();
  /** Connections that are ready for HTTP/1.1 requests. */
  readonly #ready = new MemberList<Since<ClientConnection>>();
  #accepted = 0;
  #closing = false;
  #lastResponses = false;
  #cutOff = false;

  /** Number of open connections, including those without a request. */
  get size(): number {
    return this.#open.size;
  }

  /** Adds a connection that was just accepted. */
  opened(socket: Socket): void {
    this.#accepted += 1;
    socket.once('close', this.#open.add({ value: socket, at: performance.now() }));
  }

  /** Records that a connection can now carry HTTP/1.1 requests. */
  ready(connection: ClientConnection): void {
    const { socket } = connection;
    if (this.#closing && !connection.hasAsked) closeUnlessRead(socket, nextRequestMilliseconds);
    socket.once('close', this.#ready.add({ value: connection, at: performance.now() }));
  }

  /** Whether all connections were closed forcibly, even with requests in flight. */
  get areCutOff(): boolean {
    return this.#cutOff;
  }

  /** Whether `closeUnused` was called. From then on, a connection that stays idle for a second is closed. */
  get areClosing(): boolean {
    return this.#closing;
  }

  /** Whether each response is the last one on its connection. */
  get responsesAreLast(): boolean {
    return this.#lastResponses || this.#closing;
  }

  /**
   * Closes each connection after its next response, which carries `connection: close`, so the client sends no further
   * request. An immediate close of an idle connection could lose a request in transit. The listener continues to accept
   * new connections.
   */
  endWithNextResponse(): void {
    this.#lastResponses = true;
  }

  /**
   * During shutdown, closes the connection of a keep-alive response if no further request arrives in time. Does nothing
   * if a pipelined request has arrived already.
   */
  responseEnded(exchange: Exchange, connection: ClientConnection): void {
    if (this.#closing && exchange.response.shouldKeepAlive && connection.newest === exchange)
      closeUnlessRead(connection.socket, nextRequestMilliseconds);
  }

  /**
   * Waits, for at most one second, until the event loop has accepted the connections that were pending in the kernel
   * and has read their bytes. Otherwise the kernel would reset these connections at shutdown: those still pending when
   * the listening socket closes, and those that are closed with unread bytes. The wait can take many event loop turns,
   * because libuv accepts only one connection per turn.
   */
  async arrived(): Promise<void> {
    const end = performance.now() + nextRequestMilliseconds;
    for (let before = -1; before !== this.#accepted && performance.now() < end;) {
      before = this.#accepted;
      await setImmediate();
      await setImmediate();
    }
  }

  /** Closes every connection that has sent no request, once its time for the first request has passed. */
  closeUnused(): void {
    this.#closing = true;
    const now = performance.now();
    for (const { value, at } of this.#ready.members())
      if (!value.hasAsked) closeUnlessRead(value.socket, at + nextRequestMilliseconds - now);
    for (const { value, at } of this.#open.members())
      if (value.bytesRead === 0) closeUnlessRead(value, at + nextRequestMilliseconds - now);
  }

  /**
   * Closes every connection, even with a request in flight. TLS sockets are destroyed first, because destroying the TCP
   * socket below a TLS socket with pending writes crashes the process.
   */
  cutOff(): void {
    this.#cutOff = true;
    for (const { value: connection } of this.#ready.members()) {
      const { newest } = connection;
      if (newest?.response.headersSent === true) abortResponse(newest.response);
      connection.socket.destroy();
    }
    for (const { value: socket } of this.#open.members()) socket.destroy();
  }
}

/**
 * Returns the delay before the drain (orderly shutdown) closes connections, in milliseconds. If connections are open,
 * the delay is long enough for active clients to send one more request, whose response then carries `connection:
 * close`.
 */
export function drainDelay(configuredSeconds: number, listeners: readonly Connections[]): number {
  const isInUse = listeners.some(({ size }) => size > 0);
  return Math.max(configuredSeconds * 1000, isInUse ? nextRequestMilliseconds : 0);
}

/**
 * Closes a connection if it receives no more bytes within this time, in milliseconds. Closes it immediately if the time
 * is zero or negative.
 */
function closeUnlessRead(socket: Socket, milliseconds: number): void {
  if (milliseconds <= 0) {
    socket.destroy();
    return;
  }
  const { bytesRead } = socket;
  const timer = setTimeout(() => {
    destroyUnlessRead(socket, bytesRead);
  }, milliseconds);
  socket.once('close', () => {
    clearTimeout(timer);
  });
}

/**
 * Destroys a socket whose time is over, unless it has received more than `bytesRead` bytes. After a stall of the
 * process, Node runs due timers before it reads the bytes that arrived meanwhile, so the check follows the next read.
 */
function destroyUnlessRead(socket: Socket, bytesRead: number): void {
  atEndOfTurn(() => {
    if (socket.bytesRead === bytesRead) socket.destroy();
  });
}

/**
 * Closes a connection after its keep-alive timeout. Does nothing while a response with its own timeout is being sent,
 * even if further requests wait.
 */
export function closeAfterTimeout(socket: Socket): void {
  const { current } = connectionOf(socket);
  if (current?.over === false && current.response.listenerCount('timeout') > 0) return;
  destroyUnlessRead(socket, socket.bytesRead);
}

/** A member and its index. */
interface Slot<Member> {
  readonly member: Member;
  index: number;
}

/**
 * A set whose members change constantly. V8's Set and Map are unsuitable: V8 replaces their hash table as they change,
 * and each old table refers to the next table. Once one table is in V8's old generation, all later tables and their
 * removed members survive until a full garbage collection. With one request per connection, these garbage collections
 * took more than a tenth of the CPU time.
 */
export class MemberList<Member> {
  readonly #places: Slot<Member>[] = [];

  get size(): number {
    return this.#places.length;
  }

  /** Adds a member and returns the function that removes it. */
  add(member: Member): () => void {
    const place = { member, index: this.#places.length };
    this.#places.push(place);
    return () => {
      this.#remove(place);
    };
  }

  /** Returns the current members. */
  members(): Member[] {
    return this.#places.map(({ member }) => member);
  }

  /** Removes a member in O(1): the last member takes its index. */
  #remove(place: Slot<Member>): void {
    if (this.#places[place.index] !== place) return; // already removed
    const last = this.#places.pop();
    if (last === undefined || last === place) return;
    this.#places[place.index] = last;
    last.index = place.index;
  }
}
