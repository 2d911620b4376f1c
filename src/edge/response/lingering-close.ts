import type { Socket } from 'node:net';
import type { Exchange } from '../request/exchange.js';
import type { ServerResponse } from 'node:http';
import { TLSSocket } from 'node:tls';

/** A body of at most this many bytes is read and dropped, so that the connection can be kept. */
const maxDroppedBytes = 65_536;
/** How long a connection lingers once its client has nothing left to send, in milliseconds. */
const lingerMilliseconds = 2_000;
const lookMilliseconds = 250;

/** What an upload may still take after its response. */
export interface UploadLimits {
  readonly bodyBytes: number;
  readonly requestTimeoutSeconds: number;
}

/**
 * Closes the connection after a response that comes before the request body, unless the rest is small. It lingers: if it were
 * closed at once, the kernel would reset it over the unread bytes, and the client would lose the response that says what is
 * wrong. The upload may go on within its limits, because most clients read nothing before they have sent all of it.
 * @param isEnding whether the gateway itself ends, and waits for no upload
 */
export function closeOverUnreadBody(exchange: Exchange, limits: UploadLimits, isEnding: () => boolean): void {
  const { request, response } = exchange;
  const { headers, hasBody } = exchange.data;
  if (!hasBody || request.complete) return;
  const [declared] = headers.contentLength;
  const small = declared !== undefined && Number(declared) <= maxDroppedBytes;
  if (small && headers.expect.length === 0) return;
  const { socket } = request;
  const readBefore = socket.bytesRead;
  const mayContinue = (): boolean => {
    const isWithinLimits =
      socket.bytesRead - readBefore <= limits.bodyBytes && exchange.duration < limits.requestTimeoutSeconds * 1000;
    // Who was too slow has had its time.
    return isWithinLimits && exchange.outcome !== 'request_timeout' && !request.complete && !isEnding();
  };
  closeAfterResponse(exchange, mayContinue);
  response.once('finish', () => request.resume());
}

/**
 * Has a response be the last one of its connection, and lets the connection linger behind it.
 * @param mayContinue whether the client may still send, asked until it is not
 */
export function closeAfterResponse({ request, response }: Exchange, mayContinue: () => boolean = () => false): void {
  response.shouldKeepAlive = false;
  const closeSoon = (): void => {
    lingeringClose(request.socket, mayContinue);
  };
  // Node calls this when the last response of a connection has been written.
  request.socket.destroySoon = closeSoon;
}

/** Ends a connection whose client may still be sending, so that the client can read what was written before. */
export function lingeringClose(socket: Socket, mayContinue: () => boolean = () => false): void {
  socket.end();
  let since = performance.now();
  const look = setInterval(() => {
    const now = performance.now();
    if (mayContinue()) since = now;
    else if (now - since >= lingerMilliseconds) socket.destroy();
  }, lookMilliseconds);
  look.unref();
  socket.once('close', () => {
    clearInterval(look);
  });
}

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
