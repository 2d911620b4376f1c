import type { ServerResponse } from 'node:http';
import { abortResponse } from './lingering-close.js';
import type { Exchange } from '../request/exchange.js';

/** Timeouts for sending a response, in milliseconds. */
export interface ResponseTimeouts {
  /** Maximum time in which the client reads nothing. */
  readonly stallMilliseconds: number;
  /** Maximum time from the response headers to the last byte. */
  readonly totalMilliseconds: number;
}

/**
 * Limits the duration of a response. Otherwise a client that reads nothing, or only one byte every few minutes, would
 * hold an upstream connection forever.
 */
export function limitResponse(exchange: Exchange, { stallMilliseconds, totalMilliseconds }: ResponseTimeouts): void {
  const { response } = exchange;
  const { socket } = response;
  response.setTimeout(stallMilliseconds, () => {
    if (!hasUnsentBytes(exchange)) return;
    exchange.detail ??= `the client read nothing for ${stallMilliseconds / 1000} s (limits.requestTimeoutSeconds)`;
    abortResponse(response);
  });
  // The timeout belongs to the socket. Clear it after the response, because the next request on this socket could wait
  // longer for its upstream. This listener must run before Node sets the keep-alive timeout, or it would clear that
  // timeout, too.
  response.prependOnceListener('finish', () => socket?.setTimeout(0));
  if (exchange.callerIsGone) return; // the client has disconnected, so no response is sent
  const end = setTimeout(() => {
    exchange.detail = `the response was not complete after ${totalMilliseconds / 1000} s (limits.answerTimeoutSeconds)`;
    if (exchange.ownBodyBytes === null && !hasUnsentBytes(exchange)) exchange.outcome = 'upstream_timeout';
    abortResponse(response);
  }, totalMilliseconds);
  response.once('close', () => {
    clearTimeout(end);
  });
  if (exchange.data.connection.tls !== null) endWhenStuck(response);
}

/** Interval of the progress check after the client has half-closed its connection, in milliseconds. */
const checkMilliseconds = 1_000;

/**
 * Aborts the response if the client has half-closed its TLS connection and then reads nothing for a second. The client
 * may actually have reset the connection. If a reset arrives while TLS writes session tickets, Node sees only a
 * half-close, and later writes stay in the TLS layer forever.
 */
function endWhenStuck(response: ServerResponse): void {
  const { socket } = response;
  if (socket === null) return;
  let waiting = 0;
  const progressCheck = setInterval(() => {
    if (socket.readableEnded && waiting > 0 && socket.writableLength === waiting) abortResponse(response);
    waiting = socket.writableLength;
  }, checkMilliseconds);
  response.once('close', () => {
    clearInterval(progressCheck);
  });
}

/** Whether Node's write buffers contain a part of the response that has not been sent yet. */
export function hasUnsentBytes({ response }: Exchange): boolean {
  return response.writableLength > 0 || (response.socket?.writableLength ?? 0) > 0;
}
