import type { Socket } from 'node:net';
import type { Exchange } from './exchange.js';

/** A body of at most this many bytes is read and dropped, so that the connection can be kept. */
const maxDroppedBytes = 65_536;
/** How long a connection with an unread body lingers after its answer, in milliseconds. */
const lingerMilliseconds = 2_000;

/**
 * Ends the connection of a request that is answered before its body was read, unless the rest is small. It is closed
 * with a delay: closed at once, the unread bytes would make the kernel reset the connection, and the client would lose
 * the answer that tells what to mend.
 */
export function closeOverUnreadBody({ request, response, headers, hasBody }: Exchange): void {
  if (!hasBody || request.complete) return;
  const { socket } = request;
  const [declared] = headers.contentLength;
  const small = declared !== undefined && Number(declared) <= maxDroppedBytes;
  if (small && headers.expect.length === 0) return;

  response.shouldKeepAlive = false;
  const endSoon = (): void => {
    endGently(socket);
  };
  // Node calls this when the last answer of a connection has been written.
  socket.destroySoon = endSoon;
  response.once('finish', () => request.resume());
}

/** Ends a connection whose client may be sending still, so that it can read what was written before. */
export function endGently(socket: Socket): void {
  socket.end();
  setTimeout(() => socket.destroy(), lingerMilliseconds).unref();
}
