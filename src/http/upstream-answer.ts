import type { IncomingHttpHeaders } from 'node:http';
import { Readable } from 'node:stream';
import type { Dispatcher } from 'undici';
import type { Cancellation } from './cancellation.js';
import { GatewayError } from './errors.js';
import type { HeaderList } from './header-list.js';
import { returnableHeaders } from './reserved-headers.js';

/** An upstream's answer, its hop-by-hop headers left out. */
export interface UpstreamAnswer {
  readonly statusCode: number;
  readonly headers: HeaderList;
  /** Whole where it came together with the headers, as small ones do; otherwise as it comes. */
  readonly body: Buffer | Readable;
}

/** Where an answer goes. */
export interface AnswerTarget {
  readonly answered: (answer: UpstreamAnswer) => void;
  /** Called at most once, and not behind `answered`: then the body's own error tells. */
  readonly failed: (error: unknown) => void;
  /** Called when the headers have come. */
  readonly onHeaders: () => void;
}

/**
 * Reads one answer from undici. What has come whole by the end of the turn in which its headers came is handed over as
 * one piece: it needs no stream on its way then, and one that breaks off by then is a failure that its caller can be told
 * of.
 */
export class AnswerReader implements Dispatcher.DispatchHandler {
  readonly #target: AnswerTarget;
  readonly #cancellation: Cancellation;
  #controller: Dispatcher.DispatchController | null = null;
  #head: Pick<UpstreamAnswer, 'statusCode' | 'headers'> | null = null;
  #chunks: Buffer[] = [];
  #stream: AnswerStream | null = null;
  /** How much of the body is still to come; null where its length was not announced. */
  #missingBytes: number | null = null;
  #ended = false;
  #settled = false;
  readonly #timeoutSeconds: number;

  /** @param timeoutSeconds how long an answer may stop midway */
  constructor(target: AnswerTarget, cancellation: Cancellation, timeoutSeconds: number) {
    this.#target = target;
    this.#cancellation = cancellation;
    this.#timeoutSeconds = timeoutSeconds;
    cancellation.listen((reason) => {
      this.#cancel(reason);
    });
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    const { reason } = this.#cancellation;
    if (reason !== null) controller.abort(reason);
  }

  onResponseStart(controller: Dispatcher.DispatchController, statusCode: number, headers: IncomingHttpHeaders): void {
    if (statusCode < 200 && statusCode !== 101) return;
    if (statusCode < 200 || statusCode > 599) {
      const error = new Error(`it answered with the status ${statusCode}`);
      this.#fail(error);
      controller.abort(error);
      return;
    }
    this.#target.onHeaders();
    this.#head = { statusCode, headers: returnableHeaders(headers) };
    const { 'content-length': length } = headers;
    if (length !== undefined) this.#missingBytes = Number(length);
    // RFC 9110 8.6: the length in a 304 is that of another answer. undici would wait for so many bytes.
    if (statusCode === 304) this.#ended = true;
    queueMicrotask(() => {
      this.#handOver(controller);
    });
  }

  onResponseData(_controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#missingBytes !== null) this.#missingBytes -= chunk.length;
    if (this.#stream === null) this.#chunks.push(chunk);
    else this.#stream.add(chunk);
  }

  onResponseEnd(): void {
    this.#ended = true;
    this.#stream?.complete();
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    // A service that closes behind its answer, while its last piece waits for the caller, has not broken it off.
    if (this.#missingBytes === 0) this.onResponseEnd();
    else if (this.#stream !== null) this.#stream.destroy(this.#cancellation.reason ?? error);
    else if (!this.#ended) this.#fail(error);
  }

  #handOver(controller: Dispatcher.DispatchController): void {
    if (this.#settled || this.#head === null) return;
    this.#settled = true;
    const { statusCode, headers } = this.#head;
    if (this.#ended) {
      const [only] = this.#chunks;
      const body = only !== undefined && this.#chunks.length === 1 ? only : Buffer.concat(this.#chunks);
      this.#target.answered({ statusCode, headers, body });
      return;
    }
    this.#stream = new AnswerStream(controller, this.#timeoutSeconds);
    for (const chunk of this.#chunks) this.#stream.add(chunk);
    this.#chunks = [];
    this.#target.answered({ statusCode, headers, body: this.#stream });
  }

  #cancel(reason: GatewayError): void {
    this.#fail(reason);
    // Before the request is on a connection there is nothing to abort; `onRequestStart` does it then.
    if (!this.#ended) this.#controller?.abort(reason);
  }

  #fail(error: Error): void {
    if (this.#settled) return;
    this.#settled = true;
    this.#target.failed(error);
  }
}

/**
 * The body of an answer that comes piece by piece; the upstream's connection waits while nobody takes them. Its deadline
 * is its own: undici's makes a timer for every answer, also for those that come whole, and keeps each for half a second.
 */
class AnswerStream extends Readable {
  readonly #controller: Dispatcher.DispatchController;
  readonly #deadline: NodeJS.Timeout;
  #isSilent = false;

  constructor(controller: Dispatcher.DispatchController, timeoutSeconds: number) {
    super();
    this.#controller = controller;
    this.#deadline = setTimeout(() => {
      // Then it is the caller who is slow, and has limits of its own.
      if (controller.paused) this.#deadline.refresh();
      else this.#endIfStillSilent(timeoutSeconds);
    }, timeoutSeconds * 1000);
  }

  /** Takes the next piece. */
  add(chunk: Buffer): void {
    this.#isSilent = false;
    this.#deadline.refresh();
    if (!this.push(chunk)) this.#controller.pause();
  }

  /** Nothing more will come. */
  complete(): void {
    this.#isSilent = false;
    clearTimeout(this.#deadline);
    this.push(null);
  }

  /** A process that stood still comes to its timers before it reads what has come meanwhile. */
  #endIfStillSilent(seconds: number): void {
    this.#isSilent = true;
    setImmediate(() => {
      if (this.#isSilent) this.destroy(new GatewayError('upstream_timeout', `nothing came for ${seconds} s`));
    });
  }

  override _read(): void {
    if (!this.#controller.paused) return;
    this.#deadline.refresh();
    this.#controller.resume();
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    clearTimeout(this.#deadline);
    // What nobody takes any more ends its connection: the rest of the answer would stand in front of the next one.
    if (!this.readableEnded) this.#controller.abort(error ?? new Error('nobody takes the answer any more'));
    done(error);
  }
}
