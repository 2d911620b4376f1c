import type { Readable } from 'node:stream';
import {
  type AnswerHead,
  checkBeginning,
  type ResponseHeaders,
  MalformedAnswer,
  readAnswerHead,
} from './answer-head.js';

/** An upstream's answer. */
export interface UpstreamAnswer {
  readonly statusCode: number;
  readonly headers: ResponseHeaders;
  /**
   * Whole where it came together with the headers, as small ones do; otherwise as it comes. Text, a character for each
   * byte: a small one is on its way into another text, the headers, and of a long one buffers would have V8 collect
   * everything whenever there are 64 MB of them.
   */
  readonly body: string | Readable;
}

/** Where an answer goes. */
export interface AnswerTarget {
  /** Hears that a connection carries the request. */
  onStart(): void;
  /** Hears that the headers have come. */
  onHeaders(): void;
  answered(answer: UpstreamAnswer): void;
  /** Not called behind `answered`: then the body's own error tells. */
  failed(error: unknown): void;
}

/** Who is told what an answer says. Bytes are only lent: whoever keeps them copies them. */
export interface AnswerEvents {
  onHead(head: AnswerHead): void;
  onData(bytes: Buffer): void;
  onEnd(): void;
}

/** Bytes behind a whole response, or on an idle connection: requests and responses may be out of step on it. */
export class UnsolicitedBytes extends MalformedAnswer {}

const lf = 10;
const headEnd = Buffer.from('\r\n\r\n', 'latin1');
const none = Buffer.alloc(0);
const maxHeadBytes = 16_384;
const maxChunkLineBytes = 1_024;
const chunkLine = /^([\da-f]{1,12})[ \t]*(?:;[^\0-\x08\x0a-\x1f\x7f]*)?$/i;

/**
 * Reads answers out of what a connection to an upstream reads, one after the other (RFC 9112). Interim ones are passed
 * over: a client has to bear them, whether or not it asked (RFC 9110 15.2).
 */
export class AnswerParser {
  readonly #events: AnswerEvents;
  /** Of the request whose answer is awaited or under way; null where there is none. */
  #method: string | null = null;
  #part: 'head' | 'body' | 'until close' | 'chunk line' | 'chunk' | 'chunk end' | 'trailers' = 'head';
  /** What is left of a body with a length, or of a chunk. */
  #left = 0;
  /** What has come of a head or a line that is not whole yet. */
  #held: Buffer = none;
  #trailerBytes = 0;

  constructor(events: AnswerEvents) {
    this.#events = events;
  }

  /** Says that a request was sent. */
  expect(method: string): void {
    this.#method = method;
    this.#part = 'head';
  }

  /**
   * Takes what has come. Bytes that nobody awaits are an error: they would stand in front of the next answer, and another
   * merchant would get them.
   * @throws MalformedAnswer; then nothing on the connection can be read any more
   */
  take(bytes: Buffer): void {
    const all = this.#held.length === 0 ? bytes : Buffer.concat([this.#held, bytes]);
    this.#held = none;
    let at = 0;
    while (at < all.length) {
      if (this.#method === null) throw new UnsolicitedBytes('it sent more than was asked for');
      const next = this.#step(this.#method, all, at);
      if (next === null) {
        this.#held = Buffer.from(all.subarray(at)); // they are only lent
        return;
      }
      at = next;
    }
  }

  /** Says that nothing more will come; whether that is the end of an answer. */
  end(): boolean {
    if (this.#method === null || this.#part !== 'until close') return false;
    this.#over();
    return true;
  }

  /** Reads one part from `at` on, and says where the next one begins; null where not all of it has come. */
  #step(method: string, bytes: Buffer, at: number): number | null {
    switch (this.#part) {
      case 'head':
        return this.#head(method, bytes, at);
      case 'body':
      case 'chunk': {
        const end = Math.min(bytes.length, at + this.#left);
        this.#left -= end - at;
        this.#events.onData(bytes.subarray(at, end));
        if (this.#left === 0) {
          if (this.#part === 'body') this.#over();
          else this.#part = 'chunk end';
        }
        return end;
      }
      case 'until close':
        this.#events.onData(bytes.subarray(at));
        return bytes.length;
      case 'chunk line':
      case 'chunk end':
      case 'trailers':
        return this.#line(bytes, at);
    }
  }

  #head(method: string, bytes: Buffer, at: number): number | null {
    const end = bytes.indexOf(headEnd, at);
    if ((end < 0 ? bytes.length : end) - at > maxHeadBytes) throw new MalformedAnswer('its head is too long');
    if (end < 0) {
      checkBeginning(bytes.toString('latin1', at));
      return null;
    }
    const head = readAnswerHead(bytes.toString('latin1', at, end), method);
    const next = end + headEnd.length;
    if (head.statusCode < 200 && head.statusCode !== 101) return next;
    this.#events.onHead(head);
    const { framing } = head;
    if (framing === 'chunked') this.#part = 'chunk line';
    else if (framing === 'close') this.#part = 'until close';
    else if (framing === 0) this.#over();
    else {
      this.#part = 'body';
      this.#left = framing;
    }
    return next;
  }

  #line(bytes: Buffer, at: number): number | null {
    const end = bytes.indexOf(lf, at);
    const isTrailer = this.#part === 'trailers';
    const length = (end < 0 ? bytes.length : end) - at;
    if (length > (isTrailer ? maxHeadBytes - this.#trailerBytes : maxChunkLineBytes)) {
      throw new MalformedAnswer('a line between its pieces is too long');
    }
    if (end < 0) return null;
    const line = bytes.toString('latin1', at, end);
    if (!line.endsWith('\r')) throw new MalformedAnswer('a line between its pieces does not end');
    this.#endLine(line.slice(0, -1));
    return end + 1;
  }

  #endLine(line: string): void {
    if (this.#part === 'chunk end') {
      if (line !== '') throw new MalformedAnswer('a piece of it is longer than it says');
      this.#part = 'chunk line';
    } else if (this.#part === 'chunk line') {
      const size = chunkLine.exec(line)?.[1];
      if (size === undefined) throw new MalformedAnswer('the length of a piece of it is none');
      this.#left = Number.parseInt(size, 16);
      this.#part = this.#left === 0 ? 'trailers' : 'chunk';
      this.#trailerBytes = 0;
    } else if (line === '') this.#over();
    else this.#trailerBytes += line.length;
  }

  #over(): void {
    this.#method = null;
    this.#events.onEnd();
  }
}
