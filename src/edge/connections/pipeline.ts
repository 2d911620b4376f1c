import type { Socket } from 'node:net';
import type { Exchange } from '../request/exchange.js';
import { closeAfterResponse, lingeringClose } from '../response/lingering-close.js';

/** Maximum number of pipelined requests that wait on a connection. */
const mostWaiting = 16;
/** Maximum number of requests dropped on a connection after the client exceeded `mostWaiting`. */
const mostDropped = 1_000;

/** The request queue of a connection. */
interface RequestQueue {
  /** The last request received; null without a request, or after it has ended cleanly. */
  newest: Exchange | null;
  /** The request in progress, or the last one that was executed. */
  current: Exchange | null;
  waiting: number;
  /** Whether too many requests were pipelined: no request after the current one is executed. */
  isFull: boolean;
  dropped: number;
}

const lines = new WeakMap<Socket, RequestQueue>();

/** The last request received on a connection; null without a request, or after it has ended cleanly. */
export function newestExchange(socket: Socket): Exchange | null {
  return lines.get(socket)?.newest ?? null;
}

/**
 * Executes the requests of a connection one after the other. Node dispatches a pipelined request immediately and only
 * delays its response. If the connection breaks, the waiting request gets no event: it would be executed without a
 * response, without a log line, and would never release its upstream permit. If too many requests wait, the connection
 * closes after the current response, which may confirm a payout.
 * @param turn called when all earlier requests are over. `alive` is false if no response can be sent; the request must
 *   not be executed then (RFC 9112 9.6).
 */
export function awaitTurn(exchange: Exchange, turn: (alive: boolean) => void): void {
  const { socket } = exchange.request;
  const line = lineOf(socket);
  const previous = line.newest;
  line.newest = exchange;
  const begin = (): void => {
    const isAlive = !line.isFull && canRespond(exchange);
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
    // Read nothing more until the current request is over.
    socket.pause();
    if (line.current !== null) closeAfterCurrentResponse(line.current);
  }
  previous.whenOver(() => {
    line.waiting -= 1;
    begin();
  });
}

/** Closes the connection after a request's response, even if the response head already sent promises keep-alive. */
export function closeAfterCurrentResponse(exchange: Exchange): void {
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
 * Drops the reference to a finished request that was read completely and whose connection stays open. Otherwise
 * thousands of idle connections would each retain all data of their last request.
 */
export function endTurn(exchange: Exchange): void {
  const { request, response } = exchange;
  const line = lines.get(request.socket);
  if (line === undefined || !request.complete || !response.shouldKeepAlive) return;
  if (line.current === exchange) line.current = null;
  if (line.newest === exchange) line.newest = null;
}

function lineOf(socket: Socket): RequestQueue {
  const known = lines.get(socket);
  if (known !== undefined) return known;
  const line: RequestQueue = { newest: null, current: null, waiting: 0, isFull: false, dropped: 0 };
  lines.set(socket, line);
  // V8 retains the value of a WeakMap entry until a full garbage collection, even if its key is unreachable.
  socket.once('close', () => {
    line.newest = null;
    line.current = null;
  });
  return line;
}

function canRespond({ request, response }: Exchange): boolean {
  return response.socket !== null && request.socket.writable;
}
