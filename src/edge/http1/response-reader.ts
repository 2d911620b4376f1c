import type { Socket } from 'node:net';
import { Readable } from 'node:stream';

/** Alternating header names and values. The values of a repeated header form one array. */
export type ResponseHeaders = (string | string[])[];

/** The head of an upstream response. */
export interface ResponseHead {
  readonly statusCode: number;
  /** Headers of the response, with names in lower case. */
  readonly headers: ResponseHeaders;
  /** Body length in bytes, `chunked`, or `close` if the body ends with the connection. */
  readonly framing: number | 'chunked' | 'close';
  /** Whether the connection can be reused for another request. */
  readonly keepsConnection: boolean;
  /** `timeout` of the Keep-Alive header, in seconds; null if the upstream sent no such value. */
  readonly keepAliveSeconds: number | null;
}

/**
 * Error for bytes that are not an HTTP/1.x response, and for a response whose end two parsers could see at different
 * places.
 */
export class MalformedResponse extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'MalformedResponse';
  }
}

/** An upstream response. */
export interface UpstreamResponse {
  readonly statusCode: number;
  readonly headers: ResponseHeaders;
  /**
   * The body as latin1 text, one character per byte. A string if the whole body arrived together with the headers, as
   * small bodies do; otherwise a stream. Text is cheap to append to the response head. Buffers would be costly for a
   * long body, because every 64 MB of them trigger a full V8 garbage collection.
   */
  readonly body: string | Readable;
}

/** Receives the response to one request, or its failure. */
export interface ResponseListener {
  /** Called when a connection begins to carry the request. */
  onStart(): void;
  /** Called when the response headers have arrived. */
  onHeaders(): void;
  onResponse(response: UpstreamResponse): void;
  /** Called if the request fails before `onResponse`. A later failure is an error of the body stream. */
  failed(error: unknown): void;
}

/**
 * Receives the parts of a parsed response. The buffer of `bytes` is reused, so bytes that are used after the call must
 * be copied.
 */
export interface ParserEvents {
  onHead(head: ResponseHead): void;
  onData(bytes: Buffer): void;
  onEnd(): void;
}

/**
 * Size of a connection's read buffer, in bytes. This is also the high-water mark of the body stream, so that the stream
 * can buffer one read without pausing the connection.
 */
const readBytes = 65_536;

/** Lets the gateway cancel a request before its response is complete. */
interface Cancellation {
  /** Why the request was cancelled; null if it was not. */
  readonly reason: Error | null;
  /** Sets the listener. Calls it immediately if the request is already cancelled. */
  listen(listener: (reason: Error) => void): void;
}

/** Error for a response body in which the upstream paused for longer than the timeout. */
export class ResponseTimeout extends Error {}

/** The connection on which a response arrives. It can be paused for backpressure. */
interface ResponseSource {
  pause(): void;
  resume(): void;
  destroy(error?: Error): void;
}

/**
 * Reads one response. If the whole body arrives in the same read as the headers, the body is delivered as a string,
 * without a stream. If the response breaks off within that read, the client has received nothing, so it can get an
 * error response.
 */
export class ResponseReader implements ParserEvents {
  readonly #target: ResponseListener;
  readonly #cancellation: Cancellation;
  readonly #timeoutSeconds: number;
  /** The connection that carries the request. Null before a connection carries it, and after the response has ended. */
  #connection: ResponseSource | null = null;
  #head: Pick<UpstreamResponse, 'statusCode' | 'headers'> | null = null;
  #body = '';
  #stream: ResponseStream | null = null;
  #ended = false;
  /** Whether the listener has received the response or the failure. */
  isSettled = false;

  /** @param timeoutSeconds longest time between two parts of a response body, in seconds */
  constructor(target: ResponseListener, cancellation: Cancellation, timeoutSeconds: number) {
    this.#target = target;
    this.#cancellation = cancellation;
    this.#timeoutSeconds = timeoutSeconds;
    cancellation.listen((reason) => {
      this.cancel(reason);
    });
  }

  /** Called when `connection` begins to carry the request. */
  onStart(connection: ResponseSource): void {
    this.#connection = connection;
    this.#target.onStart();
  }

  onHead({ statusCode, headers }: ResponseHead): void {
    if (statusCode < 200 || statusCode > 599) {
      this.abort(new Error(`invalid response status ${statusCode}`));
      return;
    }
    this.#target.onHeaders();
    this.#head = { statusCode, headers };
  }

  onData(bytes: Buffer): void {
    const text = bytes.toString('latin1'); // a copy: the read buffer is reused
    if (this.#stream === null) this.#body += text;
    else this.#stream.add(text);
  }

  onEnd(): void {
    this.#connection = null;
    this.#ended = true;
    this.#stream?.complete();
  }

  /** Called when the response failed, before or after its first byte. */
  onFailure(error: Error): void {
    this.#connection = null;
    if (this.#stream !== null) this.#stream.destroy(this.#cancellation.reason ?? error);
    else this.#fail(error);
  }

  /** Called when the parser has consumed all bytes of one read. */
  onRead(): void {
    if (this.isSettled || this.#head === null) return;
    this.isSettled = true;
    const { statusCode, headers } = this.#head;
    const body = this.#body;
    this.#body = '';
    if (this.#ended) {
      this.#target.onResponse({ statusCode, headers, body });
      return;
    }
    this.#stream = new ResponseStream(this, this.#timeoutSeconds);
    if (body !== '') this.#stream.add(body);
    this.#target.onResponse({ statusCode, headers, body: this.#stream });
  }

  /** Cancels the request, even if it has not been sent yet. */
  cancel(reason: Error): void {
    this.#fail(reason);
    this.abort(reason);
  }

  pause(): void {
    this.#connection?.pause();
  }

  resume(): void {
    this.#connection?.resume();
  }

  /** Closes the connection. Otherwise the rest of this response would be read as the start of the next one. */
  abort(error: Error): void {
    this.#connection?.destroy(error);
  }

  #fail(error: Error): void {
    if (this.isSettled) return;
    this.isSettled = true;
    this.#target.failed(error);
  }
}

/**
 * The body of a response that arrives in several reads. Pauses the upstream connection while the client reads slowly.
 * Only this class has a timer, because a response that arrives in one read needs no timeout.
 */
class ResponseStream extends Readable {
  readonly #reader: ResponseReader;
  #isPaused = false;
  readonly #deadline: NodeJS.Timeout;
  #isSilent = false;

  constructor(reader: ResponseReader, timeoutSeconds: number) {
    super({ encoding: 'latin1', highWaterMark: readBytes });
    this.#reader = reader;
    this.#deadline = setTimeout(() => {
      // While the stream is paused, it waits for the client, not for the upstream. Other timeouts apply to the client.
      if (this.#isPaused) this.#deadline.refresh();
      else this.#endIfStillSilent(timeoutSeconds);
    }, timeoutSeconds * 1000);
  }

  /** Appends the next part of the body. */
  add(text: string): void {
    this.#isSilent = false;
    this.#deadline.refresh();
    if (this.push(text, 'latin1')) return;
    this.#isPaused = true;
    this.#reader.pause();
  }

  /** Ends the stream, because the body is complete. */
  complete(): void {
    this.#isSilent = false;
    clearTimeout(this.#deadline);
    this.push(null);
  }

  /**
   * Fails the stream if no data arrives in this event loop turn either. After a stall of the process, Node runs due
   * timers before it reads the bytes that arrived meanwhile, so the timer alone does not show a silent upstream.
   */
  #endIfStillSilent(seconds: number): void {
    this.#isSilent = true;
    setImmediate(() => {
      if (this.#isSilent) this.destroy(new ResponseTimeout(`no data for ${seconds} s`));
    });
  }

  override _read(): void {
    if (!this.#isPaused) return;
    this.#isPaused = false;
    this.#deadline.refresh();
    this.#reader.resume();
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    clearTimeout(this.#deadline);
    this.#reader.abort(error ?? new Error('the response is no longer needed'));
    done(error);
  }
}

type Done = (error?: Error | null) => void;

/** Error codes of a connection that the peer has closed or reset. */
const peerClosedCodes: ReadonlySet<unknown> = new Set(['EPIPE', 'ECONNRESET']);

/**
 * Keeps reading a socket after a write has failed because the peer is gone. Node would destroy the socket and lose
 * unread bytes, such as the response of a service that rejected the rest of a body. This function hides the failure
 * from Node. For Node, the failed write stays pending, so Node writes no further bytes.
 * @param onFailed called when a write fails because the peer is gone
 */
export function keepReadingAfterFailedWrites(socket: Socket, onFailed: () => void): void {
  const watched =
    (done: Done): Done =>
    (error) => {
      if (peerClosedCodes.has((error as NodeJS.ErrnoException | null | undefined)?.code)) onFailed();
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
