import type { Socket } from 'node:net';
import type { Exchange } from '../request/exchange.js';
import { closeAfterResponse, lingeringClose } from '../response/lingering-close.js';

/** Maximum number of pipelined requests that wait on a connection. */
const mostWaiting = 16;
/**
 * Maximum number of requests dropped on a connection after the client exceeded `mostWaiting`. Then the connection is
 * closed.
 */
const mostDropped = 1_000;

/** The request queue of a connection. */
interface RequestQueue {
  /** The last request received; null before the first request, or after the last one has ended cleanly. */
  newest: Exchange | null;
  /** The request in progress, or the last one that was executed; null if neither is retained. */
  current: Exchange | null;
  waiting: number;
  /** Whether too many requests were pipelined. If so, no request after the current one is executed. */
  isFull: boolean;
  dropped: number;
}

const lines = new WeakMap<Socket, RequestQueue>();

/**
 * Returns the last request received on a connection; null before the first one, or after the last one has ended
 * cleanly.
 */
export function newestExchange(socket: Socket): Exchange | null {
  return lines.get(socket)?.newest ?? null;
}

/**
 * Executes the requests of a connection one after the other. Node dispatches a pipelined request immediately and delays
 * only its response. If the connection breaks, a waiting request gets no event. It would be executed without a response
 * or a log line, and would never release its upstream permit. If too many requests wait, the connection closes after
 * the current response, which may confirm a payout.
 * @param turn called when all earlier requests have ended. `alive` is false if no response can be sent; the request
 *   must not be executed then (RFC 9112 9.6).
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
    // Stop reading until the current request has ended.
    socket.pause();
    if (line.current !== null) closeAfterCurrentResponse(line.current);
  }
  previous.whenOver(() => {
    line.waiting -= 1;
    begin();
  });
}

/**
 * Closes the connection after the response to this request, even if the head of the response has already promised
 * keep-alive.
 */
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
 * Drops the reference to a finished request that was read completely and whose connection stays open. Otherwise each of
 * thousands of idle connections would retain all data of its last request.
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
  // Clear the references on close. V8 retains the value of a WeakMap entry until a full garbage collection, even if its
  // key is unreachable.
  socket.once('close', () => {
    line.newest = null;
    line.current = null;
  });
  return line;
}

function canRespond({ request, response }: Exchange): boolean {
  return response.socket !== null && request.socket.writable;
}
