import type { Socket } from 'node:net';
import type { Readable } from 'node:stream';
import { memoize } from '../../policy/memoize.js';
import { ResponseParser, UnsolicitedBytes } from './response-parser.js';
import { keepReadingAfterFailedWrites, type ResponseHead, type ResponseReader } from './response-reader.js';

/** A request in wire format. */
export interface WireRequest {
  readonly merchantId: string;
  readonly method: string;
  /** The request head as latin1, including the empty line at its end. */
  readonly head: string;
  readonly body: Buffer | Readable | null;
  /** The body framing that the head states: length in bytes, `chunked` (RFC 9112 7.1), or null without a body. */
  readonly framing: number | 'chunked' | null;
}

/** Events of a connection for its pool. */
export interface ConnectionEvents {
  /** The connection is idle and can carry another request. */
  readonly onIdle: (connection: Connection) => void;
  /** The service sent bytes without a pending request, so the connection was closed. */
  readonly onUnsolicited: (connection: Connection) => void;
  readonly onClose: (connection: Connection) => void;
}

/**
 * Error of a reused connection that ended before the first byte of the response. Most likely the service had already
 * closed the connection and never read the request.
 */
export class ClosedBeforeResponse extends Error {
  constructor(reason: Error) {
    super(reason.message, { cause: reason });
    this.name = 'ClosedBeforeResponse';
  }
}

/**
 * How long an idle connection can be reused if the upstream sends no Keep-Alive header. This is 1 s less than the 5 s
 * after which Node services close an idle connection by default.
 */
const idleMilliseconds = 4_000;
/**
 * Safety margin, subtracted from the upstream's Keep-Alive timeout. If the upstream closed the connection while a
 * request was in transit, the gateway could not know whether the request was executed.
 */
const marginMilliseconds = 2_000;
const longestIdleMilliseconds = 600_000;
/**
 * Matches a 408, which services send to close an idle connection (RFC 9110 15.5.9). It does not count as unsolicited.
 */
const timeoutResponse = /^HTTP\/1\.[01] 408[ \r]/;

/** One connection to an upstream, which carries one request at a time. */
export class Connection {
  readonly openedAt = performance.now();
  /** When the last response ended, or `openedAt` before the first response. In `performance.now()` milliseconds. */
  idleSince = this.openedAt;
  /** Whether the connection has carried a request. */
  isUsed = false;
  /**
   * The only merchant that is allowed to use this connection, because the connection has carried a body of this
   * merchant. Null if any merchant can use it.
   */
  boundTo: string | null = null;
  readonly #socket: Socket;
  readonly #events: ConnectionEvents;
  readonly #readsBodies: boolean;
  readonly #parser: ResponseParser;
  #reader: ResponseReader | null = null;
  #upload: Readable | null = null;
  #keeps = true;
  #isRetired = false;
  /**
   * Whether the connection is reused and no byte of the current response has arrived. If so, the upstream could have
   * closed the connection before it received the request.
   */
  #mayCross = false;
  #idleMilliseconds = idleMilliseconds;
  /** Whether a write failed because the peer had closed the connection; null while writes are not observed. */
  #hasFailedToWrite: boolean | null = null;

  /** @param readsBodies whether the service reads every request body */
  constructor(socket: Socket, readsBodies: boolean, events: ConnectionEvents) {
    this.#socket = socket;
    this.#readsBodies = readsBodies;
    this.#events = events;
    this.#parser = new ResponseParser({
      onHead: (head) => {
        this.#note(head);
        this.#reader?.onHead(head);
      },
      onData: (bytes) => {
        this.#reader?.onData(bytes);
      },
      onEnd: () => {
        this.#onResponseEnd();
      },
    });
    socket.on('error', (error) => {
      this.#ended(error);
    });
    socket.on('end', () => {
      // A response body without a length ends here, unless a failed write shows that the peer has reset the connection.
      // If no response ends here, destroy the socket: the peer may never read the pending writes.
      if (this.#hasFailedToWrite !== true && this.#parser.end()) return;
      this.#ended(new Error('the upstream closed the connection'));
      socket.destroy();
    });
    socket.on('close', () => {
      this.#ended(new Error('the connection was closed'));
      events.onClose(this);
    });
  }

  /** Whether the connection was idle for so long that the upstream could soon close it, or is no longer writable. */
  isStale(now: number): boolean {
    return now - this.idleSince >= this.#idleMilliseconds || !this.#socket.writable;
  }

  /** Sends a request and passes its response to the reader. */
  carry({ merchantId, method, head, body, framing }: WireRequest, reader: ResponseReader): void {
    this.#reader = reader;
    this.#mayCross = this.isUsed;
    this.isUsed = true;
    if (body !== null && !this.#readsBodies) this.boundTo = merchantId;
    this.#parser.expect(method);
    reader.onStart(this);
    if (body === null) this.#socket.write(head, 'latin1');
    // One write is faster than two. latin1 converts bytes to characters and back without loss.
    else if (Buffer.isBuffer(body)) this.#socket.write(head + body.toString('latin1'), 'latin1');
    else {
      this.#socket.write(head, 'latin1');
      this.#send(body, framing);
    }
  }

  /** Parses bytes received from the upstream. */
  take(bytes: Buffer): void {
    const reader = this.#reader;
    this.#mayCross = false;
    try {
      this.#parser.take(bytes);
    } catch (error) {
      // If the connection closes after this response, surplus bytes do no harm, because no later request uses it.
      const isKept = !this.#socket.destroyed;
      const isTimeout = reader === null && timeoutResponse.test(bytes.toString('latin1', 0, 13));
      this.destroy(error as Error);
      if (error instanceof UnsolicitedBytes && isKept && !isTimeout) this.#events.onUnsolicited(this);
    }
    reader?.onRead();
  }

  /** Closes the connection after its current or next response. */
  retire(): void {
    this.#isRetired = true;
  }

  pause(): void {
    this.#socket.pause();
  }

  resume(): void {
    this.#socket.resume();
  }

  destroy(error: Error): void {
    this.#fail(error);
    this.#socket.destroy();
  }

  #note({ keepsConnection, keepAliveSeconds }: ResponseHead): void {
    this.#keeps = keepsConnection;
    if (keepAliveSeconds === null) this.#idleMilliseconds = idleMilliseconds;
    else this.#idleMilliseconds = Math.min(longestIdleMilliseconds, keepAliveSeconds * 1000 - marginMilliseconds);
  }

  #onResponseEnd(): void {
    const reader = this.#reader;
    if (reader === null) return; // the request was cancelled
    this.#reader = null;
    reader.onEnd();
    // If the response ends before the request is sent completely, the rest of this request would precede the next one.
    const isSending = this.#upload !== null || this.#socket.writableLength > 0;
    if (!this.#keeps || this.#isRetired || isSending || this.#idleMilliseconds <= 0) {
      this.destroy(new Error('the response is complete and the connection cannot be reused'));
      return;
    }
    this.#socket.resume();
    this.idleSince = performance.now();
    this.#events.onIdle(this);
  }

  /** Handles a connection that the peer or the network has ended. */
  #ended(error: Error): void {
    this.#fail(this.#mayCross ? new ClosedBeforeResponse(error) : error);
  }

  #fail(error: Error): void {
    const [reader, upload] = [this.#reader, this.#upload];
    this.#reader = null;
    this.#upload = null;
    reader?.onFailure(error);
    upload?.destroy();
  }

  /**
   * Streams a body as fast as the upstream accepts it. Closes the connection if the length of the body differs from the
   * length in the head. The service would read surplus bytes as another request, and would take missing bytes from the
   * next request.
   */
  #send(body: Readable, framing: WireRequest['framing']): void {
    this.#upload = body;
    const socket = this.#socket;
    if (this.#hasFailedToWrite === null) {
      this.#hasFailedToWrite = false;
      keepReadingAfterFailedWrites(socket, () => (this.#hasFailedToWrite = true));
    }
    const isChunked = framing === 'chunked';
    let left = typeof framing === 'number' ? framing : 0;
    const goOn = (): void => {
      body.resume();
    };
    body.on('data', (chunk: Buffer) => {
      if (this.#upload !== body || chunk.length === 0) return;
      left -= chunk.length;
      if (!isChunked && left < 0) {
        this.destroy(new Error('the request body is longer than its Content-Length'));
        return;
      }
      socket.cork();
      if (isChunked) socket.write(`${chunk.length.toString(16)}\r\n`, 'latin1');
      let hasRoom = socket.write(chunk);
      if (isChunked) hasRoom = socket.write('\r\n', 'latin1');
      socket.uncork();
      if (!hasRoom) body.pause();
    });
    socket.on('drain', goOn);
    body.once('close', () => socket.off('drain', goOn));
    body.once('end', () => {
      if (this.#upload !== body) return;
      if (!isChunked && left > 0) {
        this.destroy(new Error('the request body is shorter than its Content-Length'));
        return;
      }
      this.#upload = null;
      if (isChunked) socket.write('0\r\n\r\n', 'latin1');
    });
  }
}

/** A request line, its headers and the body framing. */
export interface RequestHead {
  readonly method: string;
  /** Path and query of the request target. */
  readonly target: string;
  /** Value of the Host header. */
  readonly host: string;
  /** Alternating header names and values, without hop-by-hop headers. */
  readonly headers: readonly string[];
  /** Body length in bytes, `chunked` if the length is unknown, null without a body. */
  readonly body: number | 'chunked' | null;
  /** Whether the connection can be reused for another request. */
  readonly keepsConnection: boolean;
}

const fieldName = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const isFieldName = memoize(1_000, (name) => fieldName.test(name));
const notInTarget = /[^\x21-\xff]/;
/** Matches a character that RFC 9110 5.5 forbids in a header value. */
const notInValue = /[^\t\x20-\x7e\x80-\xff]/;
/**
 * Methods whose requests usually have a body. A request with one of these methods but without a body gets
 * `content-length: 0` (RFC 9110 8.6).
 */
const methodsWithBodies: ReadonlySet<string> = new Set(['POST', 'PUT', 'PATCH']);

/**
 * Serializes a request head as latin1, including the empty line at its end.
 * @throws Error for an invalid target or header. Node's parser has already checked the client's request, so this is a
 *   second check.
 */
export function writeRequestHead({ method, target, host, headers, body, keepsConnection }: RequestHead): string {
  if (notInTarget.test(target)) throw new Error('invalid character in the request target');
  // The gateway closes the connection after the response to a HEAD, so it announces the close to the service.
  const connection = keepsConnection && method !== 'HEAD' ? 'keep-alive' : 'close';
  let head = `${method} ${target} HTTP/1.1\r\nhost: ${host}\r\nconnection: ${connection}\r\n`;
  // The body framing precedes the client's headers. A service that drops the last headers of a long list would
  // otherwise see no body.
  if (body === 'chunked') head += 'transfer-encoding: chunked\r\n';
  else if (body !== null || methodsWithBodies.has(method)) head += `content-length: ${body ?? 0}\r\n`;
  for (let index = 0; index + 1 < headers.length; index += 2) {
    const name = headers[index] ?? '';
    const value = headers[index + 1] ?? '';
    if (name.length === 14 && name.toLowerCase() === 'content-length') continue; // written above with the actual length
    if (!isFieldName(name) || notInValue.test(value)) throw new Error('invalid character in a request header');
    head += `${name}: ${value}\r\n`;
  }
  return `${head}\r\n`;
}
