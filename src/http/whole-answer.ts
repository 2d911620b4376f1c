import type { FastifyReply } from 'fastify';
import { atEndOfTurn } from './end-of-turn.js';
import type { HeaderList } from './header-list.js';

/** An answer of at most this many bytes is written together with its headers. */
const joinedBytes = 16_384;

/**
 * Begins an answer. Not by Fastify, which copies headers three times, and gives bytes without a type one of its own.
 * @throws TypeError for a header that is none; then nothing is given
 */
export function giveHead(reply: FastifyReply, status: number, headers: HeaderList): void {
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
  const isToldLater = exchange.connection.tls !== null;
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
