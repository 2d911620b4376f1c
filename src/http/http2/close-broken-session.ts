import { constants } from 'node:http2';
import type { ServerHttp2Session } from 'node:http2';
import type { TLSSocket } from 'node:tls';

/** How often it is looked at whether a connection still moves, in milliseconds. */
const lookMilliseconds = 1_000;

/** What a socket knows of itself beyond its types: the bytes that wait for the client. */
interface WithQueue {
  readonly _handle?: { readonly writeQueueSize?: number } | null;
}

/**
 * Closes a connection on which its client has broken HTTP/2 (RFC 9113 5.4.1). After most such errors nghttp2 sends GOAWAY,
 * and from then on Node neither reads nor writes nor closes, and tells nobody: requests on it would wait for their limits,
 * and their upstreams with them. It shows by a PING that stays unsent though nothing waits for the client before it.
 * @param hasRequests whether any are in progress: else one PING for each time that the client has said something will do
 */
export function closeBrokenSession(session: ServerHttp2Session, socket: TLSSocket, hasRequests: () => boolean): void {
  let moved = -1;
  let heard = -1;
  const look = setInterval(() => {
    if (session.destroyed) return;
    const { bytesRead, bytesWritten } = socket;
    const isStill = bytesRead + bytesWritten === moved;
    moved = bytesRead + bytesWritten;
    if (!isStill || (socket as WithQueue)._handle?.writeQueueSize !== 0) return;
    if ((session.state.outboundQueueSize ?? 0) > 0) {
      session.destroy(new Error('the client has broken HTTP/2'), constants.NGHTTP2_PROTOCOL_ERROR);
    } else if (hasRequests() || bytesRead !== heard) {
      session.ping(() => (heard = socket.bytesRead));
    }
  }, lookMilliseconds);
  session.once('close', () => {
    clearInterval(look);
  });
}
