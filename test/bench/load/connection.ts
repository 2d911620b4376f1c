import { once } from 'node:events';
import net from 'node:net';
import tls from 'node:tls';
import { ResponseReader } from './response-reader.js';

/** The port of a subject, and its TLS certificate. */
export interface Target {
  readonly port: number;
  /** The trusted certificate of the subject; null: no TLS. */
  readonly ca: string | null;
}

/** A keep-alive connection with one request at a time. */
export class Connection {
  readonly #socket: net.Socket;
  readonly #opened: Promise<unknown>;
  readonly #reader = new ResponseReader();
  #onResponse: ((status: number) => void) | null = null;

  /** @param onBroken called when the connection ends without a call of `close` */
  private constructor({ port, ca }: Target, onBroken: (reason: string) => void) {
    const where = { port, host: '127.0.0.1' };
    this.#socket = ca === null ? net.connect(where) : tls.connect({ ...where, ca, servername: 'localhost' });
    this.#opened = once(this.#socket, ca === null ? 'connect' : 'secureConnect');
    this.#socket.setNoDelay(true);
    this.#socket.on('data', (chunk: Buffer) => {
      const status = this.#reader.take(chunk);
      if (status === null) return;
      const onResponse = this.#onResponse;
      this.#onResponse = null;
      onResponse?.(status);
    });
    this.#socket.once('error', (error) => {
      onBroken(error.message);
    });
    this.#socket.once('close', () => {
      onBroken('the connection was closed');
    });
  }

  static async open(target: Target, onBroken: (reason: string) => void): Promise<Connection> {
    const connection = new Connection(target, onBroken);
    await connection.#opened;
    return connection;
  }

  send(request: string, onResponse: (status: number) => void): void {
    this.#onResponse = onResponse;
    this.#socket.write(request, 'latin1');
  }

  close(): void {
    this.#socket.removeAllListeners('close').destroy();
  }
}
