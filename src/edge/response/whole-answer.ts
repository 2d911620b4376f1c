import type { FastifyReply } from 'fastify';
import { atEndOfTurn } from '../../node/end-of-turn.js';
import type { HeaderList } from '../request/request-data.js';
import type { Readable } from 'node:stream';

/** An answer of at most this many bytes is written together with its headers. */
const joinedBytes = 16_384;

/**
 * Begins an answer. Not by Fastify, which copies headers three times, and gives bytes without a type one of its own.
 * @throws TypeError for a header that is none; then nothing is given
 */
function giveHead(reply: FastifyReply, status: number, headers: HeaderList): void {
  const { exchange } = reply.request;
  const { response } = exchange;
  exchange.beforeAnswer(exchange);
  response.writeHead(status, headers);
  reply.hijack();
}

/**
 * Gives the caller an answer that is here.
 * @param body a character for each of its bytes: written with the headers, it goes out in one piece
 * @throws TypeError for a header that is none; then nothing is given
 */
export function giveWhole(reply: FastifyReply, status: number, headers: HeaderList, body: string): void {
  giveHead(reply, status, headers);
  const { exchange } = reply.request;
  const { response } = exchange;
  const { socket } = response;
  if (body.length > joinedBytes || socket === null) {
    response.end(body, 'latin1');
    exchange.afterAnswer(exchange);
    return;
  }
  // The end comes when that has gone out: Node would put an empty piece behind it, and two cost more than one. TLS says
  // later when it has; there an empty piece is a write of its own to the kernel.
  const isToldLater = exchange.data.connection.tls !== null;
  const end = (error?: Error | null): void => {
    if (!error) response.end();
  };
  socket.cork();
  if (isToldLater) response.write(body, 'latin1', end);
  else response.write(body, 'latin1');
  atEndOfTurn(() => {
    socket.uncork();
    if (!isToldLater) end();
    exchange.afterAnswer(exchange);
  });
}

/**
 * Gives the caller an answer that is still to come, no faster than it is taken. Its head goes out with the first of its
 * bytes: until then another answer can be given.
 * @param body a character for each of its bytes. It is closed when nobody takes it any more, and with a TypeError for a
 *   header that is none
 */
export function giveInPieces(reply: FastifyReply, status: number, headers: HeaderList, body: Readable): void {
  const { exchange } = reply.request;
  const { response } = exchange;
  if (exchange.callerIsGone) {
    body.destroy();
    return;
  }
  const { socket } = response;
  const begin = (): boolean => {
    if (response.headersSent) return true;
    try {
      giveHead(reply, status, headers);
      // A text of its own: Node would make one of it and the first piece, which would be copied once more.
      response.flushHeaders();
      return true;
    } catch (error) {
      body.destroy(error as Error);
      return false;
    }
  };
  body.on('data', (text: string) => {
    socket?.cork();
    if (begin()) {
      exchange.forwardedBodyBytes += text.length;
      if (!response.write(text, 'latin1')) body.pause();
    }
    socket?.uncork();
  });
  body.once('end', () => {
    if (begin()) response.end();
  });
  response.on('drain', () => {
    body.resume();
  });
  response.once('close', () => {
    body.destroy();
  });
}
