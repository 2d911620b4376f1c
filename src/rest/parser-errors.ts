import type { Socket } from 'node:net';
import type { FastifyInstance, FastifyServerOptions } from 'fastify';
import { STATUS_CODES } from '../node/http.js';
import { failure } from './envelope.js';
import { codeOf } from './refusal.js';

const statuses: Readonly<Record<string, number>> = { ERR_HTTP_REQUEST_TIMEOUT: 408, HPE_HEADER_OVERFLOW: 431 };

/** Answers in the envelope what Node's HTTP parser refuses. */
export class ParserErrors {
  readonly #waiting = new WeakMap<Socket, number>();

  /** For Fastify's option of this name. */
  readonly clientErrorHandler: NonNullable<FastifyServerOptions['clientErrorHandler']> = (error, socket) => {
    // The peer would take the refusal for the answer to the request before it, which may have moved money.
    if (socket.writable && (this.#waiting.get(socket) ?? 0) === 0) socket.write(responseTo(error.code));
    socket.destroy(error);
  };

  /** Keeps account of the connections on which a request still waits for its answer. */
  watch(app: FastifyInstance): void {
    app.addHook('onRequest', ({ socket }, reply, done) => {
      this.#waiting.set(socket, (this.#waiting.get(socket) ?? 0) + 1);
      reply.raw.once('close', () => this.#waiting.set(socket, (this.#waiting.get(socket) ?? 1) - 1));
      done();
    });
  }
}

function responseTo(code: string | undefined): string {
  const status = statuses[code ?? ''] ?? 400;
  const reason = STATUS_CODES[status] ?? '';
  const body = JSON.stringify(failure(reason, [], codeOf(status)));
  return (
    `HTTP/1.1 ${status} ${reason}\r\ndate: ${new Date().toUTCString()}\r\ncontent-type: application/json; charset=utf-8\r\n` +
    `content-length: ${Buffer.byteLength(body)}\r\nconnection: close\r\n\r\n${body}`
  );
}
