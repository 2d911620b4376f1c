import type { Socket } from 'node:net';
import type { Readable } from 'node:stream';
import type { AnswerHead } from './answer-head.js';
import { AnswerParser, UnsolicitedBytes } from './answer-parser.js';
import type { AnswerReader } from './answer-reader.js';

/** A request as it is written to a connection. */
export interface WireRequest {
  readonly merchantId: string;
  readonly method: string;
  /** With the empty line behind it, as latin1. */
  readonly head: string;
  readonly body: Buffer | Readable | null;
  /** What the head says of the body: its bytes, or `chunked` (RFC 9112 7.1). */
  readonly framing: number | 'chunked' | null;
}

/** What a pool learns of a connection. */
export interface ConnectionEvents {
  /** It can carry another request. */
  readonly onIdle: (connection: Connection) => void;
  /** Its service sent bytes that no request had asked for; it is closed. */
  readonly onUnsolicited: (connection: Connection) => void;
  readonly onClose: (connection: Connection) => void;
}

/**
 * A connection that had carried requests before has ended, and nothing came back for this one: most likely its service had
 * closed it by then, and has never read the request.
 */
export class CrossedWithEnd extends Error {
  constructor(reason: Error) {
    super(reason.message, { cause: reason });
    this.name = 'CrossedWithEnd';
  }
}

/** As most Node services do; 1 s less than they wait. */
const idleMilliseconds = 4_000;
/** A request must not cross with the end of its connection: nobody would know whether it was carried out. */
const marginMilliseconds = 2_000;
const longestIdleMilliseconds = 600_000;
/** What a service may say on an idle connection before it closes it (RFC 9110 15.5.9). */
const timeoutResponse = /^HTTP\/1\.[01] 408[ \r]/;

/** One connection to an upstream, which carries one request at a time. */
export class Connection {
  readonly openedAt = performance.now();
  /** The end of its last response, or when it was opened, by `performance.now()`. */
  idleSince = this.openedAt;
  /** Whether it has carried a request. */
  isUsed = false;
  /** The merchant of the request bodies that it has carried, whose requests alone it carries; null: any merchant's. */
  boundTo: string | null = null;
  readonly #socket: Socket;
  readonly #events: ConnectionEvents;
  readonly #readsBodies: boolean;
  readonly #parser: AnswerParser;
  #reader: AnswerReader | null = null;
  #upload: Readable | null = null;
  #keeps = true;
  #isRetired = false;
  /** Whether it had carried another request before this one, for which nothing has come yet. */
  #mayCross = false;
  #idleMilliseconds = idleMilliseconds;
  /** Whether the other side was gone when something was written: null, where nobody looks. */
  #hasFailedToWrite: boolean | null = null;

  /** @param readsBodies whether its service reads every request body */
  constructor(socket: Socket, readsBodies: boolean, events: ConnectionEvents) {
    this.#socket = socket;
    this.#readsBodies = readsBodies;
    this.#events = events;
    this.#parser = new AnswerParser({
      onHead: (head) => {
        this.#note(head);
        this.#reader?.onHead(head);
      },
      onData: (bytes) => {
        this.#reader?.onData(bytes);
      },
      onEnd: () => {
        this.#answered();
      },
    });
    socket.on('error', (error) => {
      this.#ended(error);
    });
    socket.on('end', () => {
      // An answer whose length is not told is whole at the end of its connection, but not of one that was reset: only the
      // write heard of that. And whoever takes nothing any more would never let what is still to be written go.
      if (this.#hasFailedToWrite !== true && this.#parser.end()) return;
      this.#ended(new Error('the other side closed the connection'));
      socket.destroy();
    });
    socket.on('close', () => {
      this.#ended(new Error('the connection was closed'));
      events.onClose(this);
    });
  }

  /** Whether it is idle for so long that the upstream may be about to close it. */
  isStale(now: number): boolean {
    return now - this.idleSince >= this.#idleMilliseconds || !this.#socket.writable;
  }

  /** Sends a request, whose answer the reader gets. */
  carry({ merchantId, method, head, body, framing }: WireRequest, reader: AnswerReader): void {
    this.#reader = reader;
    this.#mayCross = this.isUsed;
    this.isUsed = true;
    if (body !== null && !this.#readsBodies) this.boundTo = merchantId;
    this.#parser.expect(method);
    reader.onStart(this);
    if (body === null) this.#socket.write(head, 'latin1');
    // One piece is written faster than two; latin1 takes every byte for a character and back.
    else if (Buffer.isBuffer(body)) this.#socket.write(head + body.toString('latin1'), 'latin1');
    else {
      this.#socket.write(head, 'latin1');
      this.#send(body, framing);
    }
  }

  /** Takes what has come. */
  take(bytes: Buffer): void {
    const reader = this.#reader;
    this.#mayCross = false;
    try {
      this.#parser.take(bytes);
    } catch (error) {
      // On a connection that ends with its response, more bytes reach no request.
      const isKept = !this.#socket.destroyed;
      const isTimeout = reader === null && timeoutResponse.test(bytes.toString('latin1', 0, 13));
      this.destroy(error as Error);
      if (error instanceof UnsolicitedBytes && isKept && !isTimeout) this.#events.onUnsolicited(this);
    }
    reader?.onRead();
  }

  /** Has it close after the response that it carries or is about to carry. */
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

  #note({ keepsConnection, keepAliveSeconds }: AnswerHead): void {
    this.#keeps = keepsConnection;
    if (keepAliveSeconds === null) this.#idleMilliseconds = idleMilliseconds;
    else this.#idleMilliseconds = Math.min(longestIdleMilliseconds, keepAliveSeconds * 1000 - marginMilliseconds);
  }

  #answered(): void {
    const reader = this.#reader;
    if (reader === null) return; // it was given up meanwhile
    this.#reader = null;
    reader.onEnd();
    // Where the request is still being sent, its rest would stand in front of the next one.
    const isSending = this.#upload !== null || this.#socket.writableLength > 0;
    if (!this.#keeps || this.#isRetired || isSending || this.#idleMilliseconds <= 0) {
      this.destroy(new Error('the answer is over'));
      return;
    }
    this.#socket.resume();
    this.idleSince = performance.now();
    this.#events.onIdle(this);
  }

  /** Hears that the other side has ended it, or the network. */
  #ended(error: Error): void {
    this.#fail(this.#mayCross ? new CrossedWithEnd(error) : error);
  }

  #fail(error: Error): void {
    const [reader, upload] = [this.#reader, this.#upload];
    this.#reader = null;
    this.#upload = null;
    reader?.onFailure(error);
    upload?.destroy();
  }

  /**
   * Sends a body as it comes, no faster than the upstream takes it. One that is not as long as its head says ends the
   * connection: what it has too much would be a request of its own, and what it lacks would be taken from the next one.
   */
  #send(body: Readable, framing: WireRequest['framing']): void {
    this.#upload = body;
    const socket = this.#socket;
    if (this.#hasFailedToWrite === null) {
      this.#hasFailedToWrite = false;
      outliveFailedWrites(socket, () => (this.#hasFailedToWrite = true));
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
        this.destroy(new Error('the body is longer than its head says'));
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
        this.destroy(new Error('the body is shorter than its head says'));
        return;
      }
      this.#upload = null;
      if (isChunked) socket.write('0\r\n\r\n', 'latin1');
    });
  }
}

type Done = (error?: Error | null) => void;

/** The other side has closed or reset the connection. */
const gone: ReadonlySet<unknown> = new Set(['EPIPE', 'ECONNRESET']);

/**
 * Has a socket be read to its end where a write says that the other side is gone. Node would destroy it, and with it what
 * lies there unread: the answer of a service that did not want the rest of a body. Nothing is written from then on: to Node
 * that write is never over.
 * @param onFailed told of it
 */
function outliveFailedWrites(socket: Socket, onFailed: () => void): void {
  const watched =
    (done: Done): Done =>
    (error) => {
      if (gone.has((error as NodeJS.ErrnoException | null | undefined)?.code)) onFailed();
      else done(error);
    };
  const write = socket._write.bind(socket);
  const writeWatched: Socket['_write'] = (chunk, encoding, done) => {
    write(chunk, encoding, watched(done));
  };
  socket._write = writeWatched;
  const writev = socket._writev?.bind(socket);
  if (writev === undefined) return;
  const writevWatched: typeof writev = (chunks, done) => {
    writev(chunks, watched(done));
  };
  socket._writev = writevWatched;
}
