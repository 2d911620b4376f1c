import { subscribe } from 'node:diagnostics_channel';
import type { Socket } from 'node:net';
import { buildConnector } from 'undici';

/** `HTTP/1.1 1xx`, and the end of a head. */
const interimStart = Buffer.from('HTTP/1.1 1', 'latin1');
const headEnd = Buffer.from('\r\n\r\n', 'latin1');
const statusBytes = interimStart.length + 2;
/** A head that is longer is left to undici, which refuses it. */
const maxHeldBytes = 16_384;

/** What takes interim responses out of what a connection to an upstream reads. */
class InterimFilter {
  /** Whether a request was sent whose final answer has not begun yet. Nothing else that is read is looked at. */
  awaitsAnswer = false;
  #held: Buffer | null = null;

  /**
   * Takes the next bytes of the connection, and returns those that belong to final answers.
   * @returns null where there is nothing to read, or not enough to tell
   */
  pass(chunk: Buffer | null): Buffer | null {
    if (chunk === null || !this.awaitsAnswer) return chunk;
    let bytes = this.#held === null ? chunk : Buffer.concat([this.#held, chunk]);
    this.#held = null;
    while (isInterim(bytes)) {
      const end = bytes.indexOf(headEnd);
      if (end === -1 && bytes.length < maxHeldBytes) {
        this.#held = bytes;
        return null;
      }
      if (end === -1) break;
      bytes = bytes.subarray(end + headEnd.length);
    }
    if (bytes.length > 0) this.awaitsAnswer = false;
    return bytes.length > 0 ? bytes : null;
  }
}

/** Whether bytes begin, as far as they have come, as an interim response does; 101 is none, it ends HTTP. */
function isInterim(bytes: Buffer): boolean {
  const length = Math.min(bytes.length, interimStart.length);
  if (bytes.length === 0 || bytes.compare(interimStart, 0, length, 0, length) !== 0) return false;
  return bytes.length < statusBytes || bytes.toString('latin1', interimStart.length, statusBytes) !== '01';
}

const filters = new WeakMap<object, InterimFilter>();
let subscribed = false;

/** undici tells on this channel when it sends a request, and on which connection. */
function noteRequests(): void {
  if (subscribed) return;
  subscribed = true;
  subscribe('undici:client:sendHeaders', (message) => {
    const filter = filters.get((message as { socket: object }).socket);
    if (filter !== undefined) filter.awaitsAnswer = true;
  });
}

/**
 * Makes what opens connections to an upstream, from which interim responses that nobody asked for are dropped (RFC 9110
 * 15.2 wants a client to bear them). undici ends the connection at a 100, and so would the request that may have been
 * carried out.
 */
export function connectorWithoutInterim(options: buildConnector.BuildOptions): buildConnector.connector {
  noteRequests();
  const connect = buildConnector(options);
  return (target, done) => {
    connect(target, (...outcome) => {
      if (outcome[0] === null) dropInterim(outcome[1]);
      done(...outcome);
    });
  };
}

function dropInterim(socket: Socket): void {
  const filter = new InterimFilter();
  filters.set(socket, filter);
  const read = socket.read.bind(socket) as (size?: number) => Buffer | null;
  socket.read = (size) => {
    if (size !== undefined) return read(size); // Node's own `read(0)`, which takes nothing
    for (;;) {
      const chunk = read();
      const passed = filter.pass(chunk);
      if (chunk === null || passed !== null) return passed;
    }
  };
}
