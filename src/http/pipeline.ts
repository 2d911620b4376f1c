import type { Socket } from 'node:net';
import type { Exchange } from './exchange.js';

/** The most requests that may wait behind another one on a connection. A client that sends more is cut off. */
const mostWaiting = 16;

interface Line {
  newest: Exchange;
  waiting: number;
}

const lines = new WeakMap<Socket, Line>();

/** The newest request of a connection; undefined where there was none. */
export function newestExchange(socket: Socket): Exchange | undefined {
  return lines.get(socket)?.newest;
}

/**
 * Lets the requests of a connection come one after the other. Node starts a pipelined request at once and only holds
 * its answer back; when the connection then breaks, nobody tells that request: it would be carried out without an
 * answer, without a line in the log and with its place upstream kept for ever.
 * @param turn called when every request before this one is over; `alive` says whether it can still be answered. Where
 *   it cannot, it must not be carried out (RFC 9112 9.6)
 */
export function awaitTurn(exchange: Exchange, turn: (alive: boolean) => void): void {
  const { socket } = exchange.request;
  const line = lines.get(socket);
  const previous = line?.newest;
  lines.set(socket, { newest: exchange, waiting: line?.waiting ?? 0 });
  if (previous === undefined || previous.over) {
    turn(canAnswer(exchange));
    return;
  }
  const waiting = (line?.waiting ?? 0) + 1;
  lines.set(socket, { newest: exchange, waiting });
  if (waiting > mostWaiting) socket.destroy();
  previous.whenOver(() => {
    const current = lines.get(socket);
    if (current !== undefined) current.waiting -= 1;
    turn(canAnswer(exchange));
  });
}

function canAnswer({ request, response }: Exchange): boolean {
  return response.socket !== null && request.socket.writable;
}
