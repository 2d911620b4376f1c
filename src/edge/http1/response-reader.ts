import { Readable } from 'node:stream';
import type { ResponseHead } from './response-head.js';
import type { ParserEvents, ResponseListener, UpstreamResponse } from './response-parser.js';

/** The size of a connection's read buffer. One buffered read does not pause the connection. */
const readBytes = 65_536;

/** Cancels a request from outside. */
interface Cancellation {
  /** Null until the request is cancelled. */
  readonly reason: Error | null;
  /** Sets the listener. Calls it immediately if the request is already cancelled. */
  listen(listener: (reason: Error) => void): void;
}

/** The upstream stopped sending in the middle of a response body and exceeded the timeout. */
export class ResponseTimeout extends Error {}

/** The connection that a response arrives on. It can be paused for backpressure. */
interface ResponseSource {
  pause(): void;
  resume(): void;
  destroy(error?: Error): void;
}

/**
 * Reads one response. If the whole body arrives in the same read as the headers, it is delivered as a string, without a
 * stream. If the response breaks off within that read, the client can still get an error response.
 */
export class ResponseReader implements ParserEvents {
  readonly #target: ResponseListener;
  readonly #cancellation: Cancellation;
  readonly #timeoutSeconds: number;
  /** Null before a connection carries the request, and after the end of the response. */
  #connection: ResponseSource | null = null;
  #head: Pick<UpstreamResponse, 'statusCode' | 'headers'> | null = null;
  #body = '';
  #stream: ResponseStream | null = null;
  #ended = false;
  /** Whether the target has received the response or the failure. */
  isSettled = false;

  /** @param timeoutSeconds the longest pause within a response body */
  constructor(target: ResponseListener, cancellation: Cancellation, timeoutSeconds: number) {
    this.#target = target;
    this.#cancellation = cancellation;
    this.#timeoutSeconds = timeoutSeconds;
    cancellation.listen((reason) => {
      this.cancel(reason);
    });
  }

  /** `connection` now carries the request. */
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

  /** The response failed, before or after its first byte. */
  onFailure(error: Error): void {
    this.#connection = null;
    if (this.#stream !== null) this.#stream.destroy(this.#cancellation.reason ?? error);
    else this.#fail(error);
  }

  /** The parser has consumed all bytes of one read. */
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

  /** Cancels the request, whether or not it has been sent. */
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

  /** Closes the connection: the rest of this response would be read as the start of the next one. */
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
 * The body of a response that arrives in several reads. Pauses the upstream connection while the consumer is slow.
 * Sets its own deadline; responses that arrive in one read need no timer.
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
      // While the stream is paused, the client is slow and not the upstream. Other limits apply to the client.
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

  /** The body is complete. */
  complete(): void {
    this.#isSilent = false;
    clearTimeout(this.#deadline);
    this.push(null);
  }

  /** A stalled process runs its timers before it reads the bytes that have arrived in the meantime. */
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
