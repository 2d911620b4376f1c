import type http from 'node:http';
import type { Socket } from 'node:net';
import { breakOff } from './break-off.js';
import { newestExchange } from './pipeline.js';
import { Roster } from './roster.js';

/**
 * The connections of one listener, for its end: Node closes those that are idle after a request, but waits for those on
 * which nothing was ever asked and for handshakes that never end.
 */
export class Connections {
  readonly #open = new Roster<Socket>();
  /** Connections that carry requests of HTTP/1.1. */
  readonly #ready = new Roster<Socket>();
  /** The bytes that those had read when they became so. */
  readonly #readBefore = new WeakMap<Socket, number>();
  readonly #servers = new Set<http.Server>();
  #closing = false;
  #lastAnswers = false;
  #cutOff = false;

  /** Adds a server, whose idle connections end with it. */
  serves(server: http.Server): void {
    this.#servers.add(server);
  }

  /** How many are open, also those on which nothing was asked yet. */
  get size(): number {
    return this.#open.size;
  }

  /** Adds a connection that was just accepted. */
  opened(socket: Socket): void {
    socket.once('close', this.#open.add(socket));
  }

  /**
   * Says that a connection can carry requests of HTTP/1.1 from now on.
   * @param bufferedBytes bytes of a request that have been read already
   */
  ready(socket: Socket, bufferedBytes: number): void {
    if (this.#closing) socket.destroy();
    this.#readBefore.set(socket, socket.bytesRead - bufferedBytes);
    socket.once('close', this.#ready.add(socket));
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

  /** Closes the connection of an answer that had promised to keep it when the closing began. */
  answerEnded(): void {
    if (!this.#closing) return;
    setImmediate(() => {
      for (const server of this.#servers) server.closeIdleConnections();
    });
  }

  /** Closes every connection on which nothing was ever asked, now and from now on. */
  closeUnused(): void {
    this.#closing = true;
    for (const socket of this.#ready.members()) if (!this.hasAsked(socket)) socket.destroy();
    for (const socket of this.#open.members()) if (socket.bytesRead === 0) socket.destroy();
  }

  /**
   * Closes every connection, whatever happens on it. Those over TLS first, from above: the process crashes when a TCP
   * socket is taken away from below a TLS socket that has something to write.
   */
  cutOff(): void {
    this.#cutOff = true;
    for (const socket of this.#ready.members()) {
      const last = newestExchange(socket);
      if (last?.response.headersSent === true) breakOff(last.response);
      socket.destroy();
    }
    for (const socket of this.#open.members()) socket.destroy();
  }
}
