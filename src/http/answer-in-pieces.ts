import type { FastifyReply } from 'fastify';
import type { Readable } from 'node:stream';
import type { HeaderList } from './header-list.js';
import { giveHead } from './whole-answer.js';

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
