import type { Socket } from 'node:net';
import { setImmediate } from 'node:timers/promises';
import { breakOff } from '../response/lingering-close.js';
import type { Exchange } from '../request/exchange.js';
import { newestExchange } from './pipeline.js';

/** A connection, and since when it is open or ready, in milliseconds of `performance.now()`. */
interface Since {
  readonly socket: Socket;
  readonly at: number;
}

/**
 * How long a client has for its next request at the end, once it has connected, shaken hands, or received a response that
 * promised to keep the connection: it is about to send one, and would see a reset.
 */
const nextRequestMilliseconds = 1_000;

/**
 * The connections of one listener, for its end: Node closes those that are idle after a request, but waits for those on
 * which nothing was ever asked and for handshakes that never end.
 */
export class Connections {
  readonly #open = new Roster<Since>();
  /** Connections that carry requests of HTTP/1.1. */
  readonly #ready = new Roster<Since>();
  /** The bytes that those had read when they became so. */
  readonly #readBefore = new WeakMap<Socket, number>();
  #accepted = 0;
  #closing = false;
  #lastAnswers = false;
  #cutOff = false;

  /** How many are open, also those on which nothing was asked yet. */
  get size(): number {
    return this.#open.size;
  }

  /** Adds a connection that was just accepted. */
  opened(socket: Socket): void {
    this.#accepted += 1;
    socket.once('close', this.#open.add({ socket, at: performance.now() }));
  }

  /**
   * Says that a connection can carry requests of HTTP/1.1 from now on.
   * @param bufferedBytes bytes of a request that have been read already
   */
  ready(socket: Socket, bufferedBytes: number): void {
    if (this.#closing && bufferedBytes === 0) closeUnlessRead(socket, nextRequestMilliseconds);
    this.#readBefore.set(socket, socket.bytesRead - bufferedBytes);
    socket.once('close', this.#ready.add({ socket, at: performance.now() }));
  }

  /** Whether all of them were cut off, whatever happened on them. */
  get areCutOff(): boolean {
    return this.#cutOff;
  }

  /** Whether connections are closed as soon as they carry nothing. */
  get areClosing(): boolean {
    return this.#closing;
  }

  /** Says whether an answer is its connection's last. */
  get answersAreLast(): boolean {
    return this.#lastAnswers || this.#closing;
  }

  /**
   * Ends each connection with its next answer, while new ones are still taken. A connection that is closed between two
   * requests loses one that is under way; one that ends with an answer loses none.
   */
  endWithNextAnswer(): void {
    this.#lastAnswers = true;
  }

  /** Says whether a connection has ever carried a byte of a request. */
  hasAsked(socket: Socket): boolean {
    const bytesRead = this.#readBefore.get(socket);
    return bytesRead !== undefined && socket.bytesRead !== bytesRead;
  }

  /** Closes the connection of a response that had promised to keep it before the closing began, unless a request follows. */
  answerEnded({ request, response }: Exchange): void {
    if (this.#closing && response.shouldKeepAlive) closeUnlessRead(request.socket, nextRequestMilliseconds);
  }

  /**
   * Resolves when the event loop has taken what the kernel holds: connections, of which libuv accepts one a turn, and their bytes.
   * Closing a listening socket with connections left, or a connection with bytes left, resets them.
   */
  async arrived(): Promise<void> {
    const end = performance.now() + nextRequestMilliseconds;
    for (let before = -1; before !== this.#accepted && performance.now() < end;) {
      before = this.#accepted;
      await setImmediate();
      await setImmediate();
    }
  }

  /** Closes every connection on which nothing was ever asked, once its client has had the time to. */
  closeUnused(): void {
    this.#closing = true;
    const now = performance.now();
    const unused = [
      ...this.#ready.members().filter(({ socket }) => !this.hasAsked(socket)),
      ...this.#open.members().filter(({ socket }) => socket.bytesRead === 0),
    ];
    for (const { socket, at } of unused) closeUnlessRead(socket, at + nextRequestMilliseconds - now);
  }

  /**
   * Closes every connection, whatever happens on it. Those over TLS first, from above: the process crashes when a TCP
   * socket is taken away from below a TLS socket that has something to write.
   */
  cutOff(): void {
    this.#cutOff = true;
    for (const { socket } of this.#ready.members()) {
      const last = newestExchange(socket);
      if (last?.response.headersSent === true) breakOff(last.response);
      socket.destroy();
    }
    for (const { socket } of this.#open.members()) socket.destroy();
  }
}

/**
 * How long a gateway that drains waits before it closes connections, in milliseconds. Where some are open, long enough for clients
 * that use theirs to send one more request, whose response tells them to close.
 */
export function drainDelay(configuredSeconds: number, listeners: readonly Connections[]): number {
  const isInUse = listeners.some(({ size }) => size > 0);
  return Math.max(configuredSeconds * 1000, isInUse ? nextRequestMilliseconds : 0);
}

/** Closes a connection on which nothing more arrives for so long, in milliseconds; at once where that is not positive. */
function closeUnlessRead(socket: Socket, milliseconds: number): void {
  if (milliseconds <= 0) {
    socket.destroy();
    return;
  }
  const { bytesRead } = socket;
  const timer = setTimeout(() => {
    if (socket.bytesRead === bytesRead) socket.destroy();
  }, milliseconds);
  socket.once('close', () => {
    clearTimeout(timer);
  });
}

/** A member, and where it stands. */
interface Place<Member> {
  readonly member: Member;
  index: number;
}

/**
 * Who is there, of members that come and go all the time. V8's sets and maps leave their former tables behind, each of which
 * refers to the next: once one of them is old, all later ones stay until everything is collected, with all who were in them. Of
 * connections that carry one request each, collecting what closed ones had left took more than a tenth of the CPU.
 */
export class Roster<Member> {
  readonly #places: Place<Member>[] = [];

  get size(): number {
    return this.#places.length;
  }

  /** Takes a member in, and returns what lets it go. */
  add(member: Member): () => void {
    const place = { member, index: this.#places.length };
    this.#places.push(place);
    return () => {
      this.#remove(place);
    };
  }

  /** Those who are there now. */
  members(): Member[] {
    return this.#places.map(({ member }) => member);
  }

  /** The last one takes the place that becomes free. */
  #remove(place: Place<Member>): void {
    if (this.#places[place.index] !== place) return; // it has gone before
    const last = this.#places.pop();
    if (last === undefined || last === place) return;
    this.#places[place.index] = last;
    last.index = place.index;
  }
}
