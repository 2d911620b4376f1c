import { constants } from 'node:http2';
import type { ServerHttp2Session } from 'node:http2';
import type { TLSSocket } from 'node:tls';
import { waitsInTls, watchStillness } from '../tls/still-connection.js';

/** How long GOAWAY may take to get out of a session that is ended for what its client did, in milliseconds. */
const goawayMilliseconds = 1_000;

/**
 * Closes a connection that Node would keep for good, and tells nobody of. Its place among the connections would stay taken;
 * requests on it would wait for their limits, and their upstreams with them, and those that are answered would never be over,
 * nor in the log.
 * - Its client has broken HTTP/2 (RFC 9113 5.4.1): after most such errors nghttp2 sends GOAWAY, and that is its last. It
 *   shows by a PING that stays unsent.
 * - Its client has reset it while something was being written. What TLS has to write behind that stays where it is, and while
 *   something is being written HTTP/2 does not read, so that nobody hears of the reset.
 * - Its session has ended, and its client does not take what is still being written, or does not close its side.
 * @param hasRequests whether any are in progress: else one PING for each time that the client has said something will do
 * @param endMilliseconds how long a client may take over the rest of a session that ended well
 */
export function closeBrokenSession(
  session: ServerHttp2Session,
  socket: TLSSocket,
  hasRequests: () => boolean,
  endMilliseconds: number,
): void {
  let heard = -1;
  let endedAt: number | null = null;
  const end = watchStillness(socket, (isStill) => {
    const isStuck = isStill && waitsInTls(socket);
    if (session.destroyed) {
      endedAt ??= performance.now();
      const patience = session.closed ? endMilliseconds : goawayMilliseconds;
      if (isStuck || performance.now() - endedAt >= patience) socket.destroy();
    } else if (isStuck || (isStill && (session.state.outboundQueueSize ?? 0) > 0)) {
      session.destroy(new Error('the connection neither reads nor writes'), constants.NGHTTP2_PROTOCOL_ERROR);
      socket.destroy();
    } else if (isStill && (hasRequests() || socket.bytesRead !== heard)) {
      session.ping(() => (heard = socket.bytesRead));
    }
  });
  socket.once('close', end);
}
