import type { ServerResponse } from 'node:http';
import { breakOff } from './break-off.js';
import type { Exchange } from './exchange.js';
import { waitsInTls, watchStillness } from './tls/still-connection.js';

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
  if (exchange.connection.tls !== null) endWhenStuck(response);
}

/** A caller who reset its connection may never be heard of: its answer would hold the connection until a limit ends it. */
function endWhenStuck(response: ServerResponse): void {
  const { socket } = response;
  if (socket === null) return;
  const end = watchStillness(socket, (isStill) => {
    if (isStill && waitsInTls(socket)) breakOff(response);
  });
  response.once('close', end);
}

/** Whether there is something of the answer that the caller has not taken yet. */
export function waitsForCaller({ response }: Exchange): boolean {
  return response.writableLength > 0 || (response.socket?.writableLength ?? 0) > 0;
}
