import { constants } from 'node:http2';
import type { ServerHttp2Session } from 'node:http2';
import type { TLSSocket } from 'node:tls';
import { waitsInTls, whenStill } from '../tls/still-connection.js';

/**
 * Closes a connection that neither reads nor writes any more, though nothing waits for the client to take it. Node closes
 * it in neither of two cases, and tells nobody: requests on it would wait for their limits, and their upstreams with them,
 * and those that are answered would never be over, nor in the log.
 * - Its client has broken HTTP/2 (RFC 9113 5.4.1): after most such errors nghttp2 sends GOAWAY, and that is its last. It
 *   shows by a PING that stays unsent.
 * - Its client has reset it while something was being written. What TLS has to write behind that stays where it is, and while
 *   something is being written HTTP/2 does not read, so that nobody hears of the reset.
 * @param hasRequests whether any are in progress: else one PING for each time that the client has said something will do
 */
export function closeBrokenSession(session: ServerHttp2Session, socket: TLSSocket, hasRequests: () => boolean): void {
  let heard = -1;
  const end = whenStill(socket, () => {
    if (session.destroyed) return;
    const { bytesRead } = socket;
    if ((session.state.outboundQueueSize ?? 0) > 0 || waitsInTls(socket)) {
      session.destroy(new Error('the connection neither reads nor writes'), constants.NGHTTP2_PROTOCOL_ERROR);
    } else if (hasRequests() || bytesRead !== heard) {
      session.ping(() => (heard = socket.bytesRead));
    }
  });
  session.once('close', end);
}
