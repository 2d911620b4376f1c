import type { Socket } from 'node:net';
import type { Exchange } from '../request/exchange.js';
import { closeAfterResponse, lingeringClose } from '../response/lingering-close.js';

/** The most requests that may wait behind another one on a connection. */
const mostWaiting = 16;
/** The most requests that are dropped, one by one, on a connection that a client has filled. */
const mostDropped = 1_000;

/** The requests of a connection. */
interface Line {
  /** Null where there was none, or it is over and has left nothing behind. */
  newest: Exchange | null;
  /** The one that is carried out, or was the last to be. */
  current: Exchange | null;
  waiting: number;
  /** Whether more came than may wait: the current one is the last that is carried out. */
  isFull: boolean;
  dropped: number;
}

const lines = new WeakMap<Socket, Line>();

/** The newest request of a connection; null where there is none that its connection has still to do with. */
export function newestExchange(socket: Socket): Exchange | null {
  return lines.get(socket)?.newest ?? null;
}

/**
 * Lets the requests of a connection come one after the other. Node starts a pipelined request at once and only holds
 * its answer back; when the connection then breaks, nobody tells that request: it would be carried out without an
 * answer, without a line in the log and with its place upstream kept for ever. If more wait than may, the connection closes
 * after the current response: that one may be of a payout that was made.
 * @param turn called when every request before this one is over; `alive` says whether it can still be answered. Where
 *   it cannot, it must not be carried out (RFC 9112 9.6)
 */
export function awaitTurn(exchange: Exchange, turn: (alive: boolean) => void): void {
  const { socket } = exchange.request;
  const line = lineOf(socket);
  const previous = line.newest;
  line.newest = exchange;
  const begin = (): void => {
    const isAlive = !line.isFull && canAnswer(exchange);
    if (isAlive) line.current = exchange;
    else if ((line.dropped += 1) > mostDropped) socket.destroy();
    turn(isAlive);
  };
  if (previous === null || previous.over) {
    begin();
    return;
  }
  line.waiting += 1;
  if (line.waiting > mostWaiting && !line.isFull) {
    line.isFull = true;
    // Until then nothing more is read.
    socket.pause();
    if (line.current !== null) endBehindResponse(line.current);
  }
  previous.whenOver(() => {
    line.waiting -= 1;
    begin();
  });
}

/** Closes the connection after the response of a request, also where its head, which is out, has promised to keep it. */
export function endBehindResponse(exchange: Exchange): void {
  const { response, request } = exchange;
  const { socket } = request;
  if (response.headersSent) {
    exchange.whenOver(() => {
      lingeringClose(socket);
    });
    response.shouldKeepAlive = false;
  } else closeAfterResponse(exchange);
  exchange.whenOver(() => socket.resume());
}

/**
 * Forgets a request that is over, where all of it has come and its connection goes on: thousands of idle connections would
 * each hold all that was found out about the last one.
 */
export function endTurn(exchange: Exchange): void {
  const { request, response } = exchange;
  const line = lines.get(request.socket);
  if (line === undefined || !request.complete || !response.shouldKeepAlive) return;
  if (line.current === exchange) line.current = null;
  if (line.newest === exchange) line.newest = null;
}

function lineOf(socket: Socket): Line {
  const known = lines.get(socket);
  if (known !== undefined) return known;
  const line: Line = { newest: null, current: null, waiting: 0, isFull: false, dropped: 0 };
  lines.set(socket, line);
  // V8 keeps what an entry of a WeakMap holds until it collects everything, also where nothing else holds its key.
  socket.once('close', () => {
    line.newest = null;
    line.current = null;
  });
  return line;
}

function canAnswer({ request, response }: Exchange): boolean {
  return response.socket !== null && request.socket.writable;
}
