import type http from 'node:http';
import type { Socket } from 'node:net';

/**
 * The connections of one server, for its end: Node closes those that are idle after a request, but waits for those on
 * which nothing was ever asked and for handshakes that never end.
 */
export class Connections {
  readonly #open = new Set<Socket>();
  /** Connections that can carry requests, and the bytes that they had read when they became so. */
  readonly #ready = new Map<Socket, number>();
  readonly #server: http.Server;
  #closing = false;

  constructor(server: http.Server, overTls: boolean) {
    this.#server = server;
    server.on('connection', (socket: Socket) => {
      this.#open.add(socket);
      socket.once('close', () => this.#open.delete(socket));
    });
    server.on(overTls ? 'secureConnection' : 'connection', (socket: Socket) => {
      if (this.#closing) socket.destroy();
      this.#ready.set(socket, socket.bytesRead);
      socket.once('close', () => this.#ready.delete(socket));
    });
  }

  /** Says whether the server is closing, so that an answer is its connection's last. */
  get closing(): boolean {
    return this.#closing;
  }

  /** Says whether a connection has ever carried a byte of a request. */
  hasAsked(socket: Socket): boolean {
    const bytesRead = this.#ready.get(socket);
    return bytesRead !== undefined && socket.bytesRead !== bytesRead;
  }

  /** Closes the connection of an answer that had promised to keep it when the closing began. */
  answerEnded(): void {
    if (!this.#closing) return;
    setImmediate(() => {
      this.#server.closeIdleConnections();
    });
  }

  /** Closes every connection on which nothing was ever asked, now and from now on. */
  closeUnused(): void {
    this.#closing = true;
    for (const socket of this.#ready.keys()) if (!this.hasAsked(socket)) socket.destroy();
    for (const socket of this.#open) if (socket.bytesRead === 0) socket.destroy();
  }

  /**
   * Closes every connection, whatever happens on it. Those over TLS first, from above: the process crashes when a TCP
   * socket is taken away from below a TLS socket that has something to write.
   */
  cutOff(): void {
    for (const socket of this.#ready.keys()) socket.destroy();
    for (const socket of this.#open) socket.destroy();
  }
}
