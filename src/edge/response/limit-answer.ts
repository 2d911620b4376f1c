import type { ServerResponse } from 'node:http';
import { breakOff } from './lingering-close.js';
import type { Exchange } from '../request/exchange.js';

/** How long a caller may take over an answer. */
export interface AnswerTimeouts {
  /** Without taking anything of it. */
  readonly stallMilliseconds: number;
  /** From its headers to its last byte. */
  readonly totalMilliseconds: number;
}

/** A caller who takes nothing of the answer, or a byte from time to time, would keep a place upstream for ever. */
export function limitAnswer(exchange: Exchange, { stallMilliseconds, totalMilliseconds }: AnswerTimeouts): void {
  const { response } = exchange;
  const { socket } = response;
  response.setTimeout(stallMilliseconds, () => {
    if (waitsForCaller(exchange)) breakOff(response);
  });
  // It is the socket's: the request behind this one may wait longer for its upstream. Before Node sets that of idleness.
  response.prependOnceListener('finish', () => socket?.setTimeout(0));
  if (exchange.callerIsGone) return; // the caller has left, and the answer goes nowhere
  const end = setTimeout(() => {
    exchange.detail = `the answer was not over after ${totalMilliseconds / 1000} s`;
    if (exchange.ownBodyBytes === null && !waitsForCaller(exchange)) exchange.outcome = 'upstream_timeout';
    breakOff(response);
  }, totalMilliseconds);
  response.once('close', () => {
    clearTimeout(end);
  });
  if (exchange.data.connection.tls !== null) endWhenStuck(response);
}

/** How often it is looked at whether a caller who has ended its side still takes something, in milliseconds. */
const lookMilliseconds = 1_000;

/**
 * Ends the response to a caller who has ended its side of a TLS connection, and takes nothing for a second. Where a client resets
 * its connection while TLS writes the tickets of its session, Node notices no more than that end: what is to be written behind them
 * stays in TLS for good.
 */
function endWhenStuck(response: ServerResponse): void {
  const { socket } = response;
  if (socket === null) return;
  let waiting = 0;
  const looks = setInterval(() => {
    if (socket.readableEnded && waiting > 0 && socket.writableLength === waiting) breakOff(response);
    waiting = socket.writableLength;
  }, lookMilliseconds);
  response.once('close', () => {
    clearInterval(looks);
  });
}

/** Whether there is something of the answer that the caller has not taken yet. */
export function waitsForCaller({ response }: Exchange): boolean {
  return response.writableLength > 0 || (response.socket?.writableLength ?? 0) > 0;
}
