import type { ServerResponse } from 'node:http';
import { TLSSocket } from 'node:tls';

/**
 * Ends an answer that has begun and will not be whole. To a caller of HTTP/1.0 the end of its connection is the end of the
 * answer (RFC 9112 6.3): it would take the part that it has for the whole, so its connection is reset. Over TLS it can tell by
 * itself, as nothing of TLS says goodbye.
 */
export function breakOff(response: ServerResponse): void {
  const { socket } = response;
  if (socket !== null && response.req.httpVersionMinor === 0 && !(socket instanceof TLSSocket))
    socket.resetAndDestroy();
  else response.destroy();
}
