import { Readable } from 'node:stream';
import type { AnswerHead } from './answer-head.js';
import type { AnswerEvents, AnswerTarget, UpstreamAnswer } from './answer-parser.js';

/** As much as a connection reads at once: for one such piece it is not stopped. */
const readBytes = 65_536;

/** Ends a request from outside, for a reason. */
interface Cancellation {
  /** Null while nobody has. */
  readonly reason: Error | null;
  /** Sets who is told, at once where it is ended already. */
  listen(listener: (reason: Error) => void): void;
}

/** The rest of an answer did not come in time. */
export class SilentAnswer extends Error {}

/** Where an answer comes from: a connection that waits while nobody takes its bytes. */
interface AnswerSource {
  pause(): void;
  resume(): void;
  destroy(error?: Error): void;
}

/**
 * Reads one answer. What has come whole with the bytes in which its headers came is handed over as one piece: it needs no
 * stream on its way then, and one that breaks off by then is a failure that its caller can be told of.
 */
export class AnswerReader implements AnswerEvents {
  readonly #target: AnswerTarget;
  readonly #cancellation: Cancellation;
  readonly #timeoutSeconds: number;
  /** Null before the request is on a connection, and when the answer is over. */
  #connection: AnswerSource | null = null;
  #head: Pick<UpstreamAnswer, 'statusCode' | 'headers'> | null = null;
  #body = '';
  #stream: AnswerStream | null = null;
  #ended = false;
  /** Whether somebody was told of an answer or a failure. */
  isSettled = false;

  /** @param timeoutSeconds how long an answer may stop midway */
  constructor(target: AnswerTarget, cancellation: Cancellation, timeoutSeconds: number) {
    this.#target = target;
    this.#cancellation = cancellation;
    this.#timeoutSeconds = timeoutSeconds;
    cancellation.listen((reason) => {
      this.cancel(reason);
    });
  }

  /** Hears which connection carries the request. */
  onStart(connection: AnswerSource): void {
    this.#connection = connection;
    this.#target.onStart();
  }

  onHead({ statusCode, headers }: AnswerHead): void {
    if (statusCode < 200 || statusCode > 599) {
      this.abort(new Error(`it answered with the status ${statusCode}`));
      return;
    }
    this.#target.onHeaders();
    this.#head = { statusCode, headers };
  }

  onData(bytes: Buffer): void {
    const text = bytes.toString('latin1'); // they are only lent
    if (this.#stream === null) this.#body += text;
    else this.#stream.add(text);
  }

  onEnd(): void {
    this.#connection = null;
    this.#ended = true;
    this.#stream?.complete();
  }

  /** Hears that the answer will not come, or not go on. */
  onFailure(error: Error): void {
    this.#connection = null;
    if (this.#stream !== null) this.#stream.destroy(this.#cancellation.reason ?? error);
    else this.#fail(error);
  }

  /** Hears that what the connection had read at once is read. */
  onRead(): void {
    if (this.isSettled || this.#head === null) return;
    this.isSettled = true;
    const { statusCode, headers } = this.#head;
    const body = this.#body;
    this.#body = '';
    if (this.#ended) {
      this.#target.answered({ statusCode, headers, body });
      return;
    }
    this.#stream = new AnswerStream(this, this.#timeoutSeconds);
    if (body !== '') this.#stream.add(body);
    this.#target.answered({ statusCode, headers, body: this.#stream });
  }

  /** Gives the answer up, whether or not its request has been sent. */
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

  /** Ends the connection: the rest of the answer would stand in front of the next one. */
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
 * The body of an answer that comes piece by piece; the upstream's connection waits while nobody takes them. Its deadline
 * is its own, as those that come whole need none.
 */
class AnswerStream extends Readable {
  readonly #reader: AnswerReader;
  #isPaused = false;
  readonly #deadline: NodeJS.Timeout;
  #isSilent = false;

  constructor(reader: AnswerReader, timeoutSeconds: number) {
    super({ encoding: 'latin1', highWaterMark: readBytes });
    this.#reader = reader;
    this.#deadline = setTimeout(() => {
      // Then it is the caller who is slow, and has limits of its own.
      if (this.#isPaused) this.#deadline.refresh();
      else this.#endIfStillSilent(timeoutSeconds);
    }, timeoutSeconds * 1000);
  }

  /** Takes the next piece. */
  add(text: string): void {
    this.#isSilent = false;
    this.#deadline.refresh();
    if (this.push(text, 'latin1')) return;
    this.#isPaused = true;
    this.#reader.pause();
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
      if (this.#isSilent) this.destroy(new SilentAnswer(`nothing came for ${seconds} s`));
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
    this.#reader.abort(error ?? new Error('nobody takes the answer any more'));
    done(error);
  }
}
