import type { Socket } from 'node:net';
import type { Exchange } from '../request/exchange.js';
import type { ServerResponse } from 'node:http';
import { TLSSocket } from 'node:tls';

/** The largest request body, in bytes, that is discarded to keep the connection alive. */
const maxDroppedBytes = 65_536;
/**
 * How long a connection stays open once its client is no longer allowed to send, in milliseconds. This gives the client
 * time to read its response.
 */
const lingerMilliseconds = 2_000;
const checkMilliseconds = 250;

/** Limits for the rest of a request body that is still arriving after the response was sent. */
export interface UploadLimits {
  readonly bodyBytes: number;
  readonly requestTimeoutSeconds: number;
}

/**
 * Closes the connection after a response that is sent before the whole request body has arrived. Does so only if the
 * body is large or has no declared length, if the client expects 100 Continue, or if this response is the last one of
 * the connection anyway. An immediate close would leave unread bytes, so the kernel would reset the connection, and the
 * client would lose the response. The close therefore lingers, and the upload can continue within its limits, because
 * most clients read the response only after sending the whole body.
 * @param isEnding whether the gateway is shutting down and no longer waits for uploads
 */
export function closeOverUnreadBody(exchange: Exchange, limits: UploadLimits, isEnding: () => boolean): void {
  const { request, response } = exchange;
  const { headers, hasBody } = exchange.data;
  if (!hasBody || request.complete) return;
  const [declared] = headers.contentLength;
  const small = declared !== undefined && Number(declared) <= maxDroppedBytes;
  // Node itself discards the rest of a small body, but only on a connection that stays open.
  if (small && headers.expect.length === 0 && response.shouldKeepAlive) return;
  const { socket } = request;
  const readBefore = socket.bytesRead;
  const mayContinue = (): boolean => {
    const isWithinLimits =
      socket.bytesRead - readBefore <= limits.bodyBytes && exchange.age < limits.requestTimeoutSeconds * 1000;
    // If the request timed out, its upload gets no further time.
    return isWithinLimits && exchange.outcome !== 'request_timeout' && !request.complete && !isEnding();
  };
  closeAfterResponse(exchange, mayContinue);
  response.once('finish', () => request.resume());
}

/**
 * Makes a response the last one of its connection. A lingering close follows, which leaves the client time to read.
 * @param mayContinue whether the client is allowed to continue sending; called repeatedly until it returns false
 */
export function closeAfterResponse({ request, response }: Exchange, mayContinue: () => boolean = () => false): void {
  response.shouldKeepAlive = false;
  const closeSoon = (): void => {
    lingeringClose(request.socket, mayContinue);
  };
  // Node calls `destroySoon` after it has written the last response of a connection.
  request.socket.destroySoon = closeSoon;
}

/**
 * Closes a connection whose client could be sending at present. Leaves the client time to read what was written.
 * @param mayContinue whether the client is allowed to continue sending; called repeatedly until it returns false
 */
export function lingeringClose(socket: Socket, mayContinue: () => boolean = () => false): void {
  socket.end();
  let since = performance.now();
  const timer = setInterval(() => {
    const now = performance.now();
    if (mayContinue()) since = now;
    else if (now - since >= lingerMilliseconds) socket.destroy();
  }, checkMilliseconds);
  timer.unref();
  socket.once('close', () => {
    clearInterval(timer);
  });
}

/**
 * Aborts a response that has begun and cannot be completed. An HTTP/1.0 client takes the end of the connection for the
 * end of the response (RFC 9112 6.3). Its connection is therefore reset, so that the client rejects the partial body.
 * Over TLS, no reset is needed: the client detects the truncation, because no close_notify is sent.
 */
export function abortResponse(response: ServerResponse): void {
  const { socket } = response;
  if (socket !== null && response.req.httpVersionMinor === 0 && !(socket instanceof TLSSocket))
    socket.resetAndDestroy();
  else response.destroy();
}
