import type { Socket } from 'node:net';
import type { Exchange } from './exchange.js';

/** The most requests that may wait behind another one on a connection. A client that sends more is cut off. */
const mostWaiting = 16;

/** The requests of a connection. */
interface Line {
  /** Null where there was none, or it is over and has left nothing behind. */
  newest: Exchange | null;
  waiting: number;
}

const lines = new WeakMap<Socket, Line>();

/** The newest request of a connection; null where there is none that its connection has still to do with. */
export function newestExchange(socket: Socket): Exchange | null {
  return lines.get(socket)?.newest ?? null;
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
  const line = lineOf(socket);
  const previous = line.newest;
  line.newest = exchange;
  if (previous === null || previous.over) {
    turn(canAnswer(exchange));
    return;
  }
  line.waiting += 1;
  if (line.waiting > mostWaiting) socket.destroy();
  previous.whenOver(() => {
    line.waiting -= 1;
    turn(canAnswer(exchange));
  });
}

/**
 * Forgets a request that is over, where all of it has come and its connection goes on: thousands of idle connections would
 * each hold all that was found out about the last one.
 */
export function endTurn(exchange: Exchange): void {
  const { request, response } = exchange;
  const line = lines.get(request.socket);
  if (line?.newest === exchange && request.complete && response.shouldKeepAlive) line.newest = null;
}

function lineOf(socket: Socket): Line {
  const known = lines.get(socket);
  if (known !== undefined) return known;
  const line: Line = { newest: null, waiting: 0 };
  lines.set(socket, line);
  // V8 keeps what an entry of a WeakMap holds until it collects everything, also where nothing else holds its key.
  socket.once('close', () => {
    line.newest = null;
  });
  return line;
}

function canAnswer({ request, response }: Exchange): boolean {
  return response.socket !== null && request.socket.writable;
}
