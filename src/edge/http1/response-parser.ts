import type { Readable } from 'node:stream';
import {
  type ResponseHead,
  checkBeginning,
  type ResponseHeaders,
  MalformedResponse,
  parseResponseHead,
} from './response-head.js';

/** An upstream response. */
export interface UpstreamResponse {
  readonly statusCode: number;
  readonly headers: ResponseHeaders;
  /**
   * The body as latin1 text, one character per byte. A string if the whole body arrived together with the headers, as
   * small bodies do; otherwise a stream. Text is cheap to append to the response head. For a long body, 64 MB of
   * buffers would trigger a full V8 garbage collection.
   */
  readonly body: string | Readable;
}

/** Receives the response to one request, or its failure. */
export interface ResponseListener {
  /** Called when a connection carries the request. */
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

/** Error for bytes after a complete response or on an idle connection. Responses may no longer match their requests. */
export class UnsolicitedBytes extends MalformedResponse {}

const lf = 10;
const headEnd = Buffer.from('\r\n\r\n', 'latin1');
const noBytes = Buffer.alloc(0);
const maxHeadBytes = 16_384;
const maxChunkLineBytes = 1_024;
const chunkLine = /^([\da-f]{1,12})[ \t]*(?:;[^\0-\x08\x0a-\x1f\x7f]*)?$/i;

/**
 * Parses the successive responses on an upstream connection (RFC 9112). Skips interim (1xx) responses other than 101,
 * because a client must accept them even if it did not request them (RFC 9110 15.2).
 */
export class ResponseParser {
  readonly #events: ParserEvents;
  /** Method of the request whose response is pending; null without a pending request. */
  #method: string | null = null;
  #part: 'head' | 'body' | 'until close' | 'chunk line' | 'chunk' | 'chunk end' | 'trailers' = 'head';
  /** Bytes remaining of the current chunk, or of a body with Content-Length. */
  #left = 0;
  /** Received bytes of a head or line that is not complete yet. */
  #held: Buffer = noBytes;
  #trailerBytes = 0;

  constructor(events: ParserEvents) {
    this.#events = events;
  }

  /** Prepares for the response to a request with this method. */
  expect(method: string): void {
    this.#method = method;
    this.#part = 'head';
  }

  /**
   * Parses received bytes. Bytes without a pending request are an error. They would be read as the start of the next
   * response, which may belong to another merchant.
   * @throws MalformedResponse if the connection can no longer be parsed
   */
  take(bytes: Buffer): void {
    const all = this.#held.length === 0 ? bytes : Buffer.concat([this.#held, bytes]);
    this.#held = noBytes;
    let at = 0;
    while (at < all.length) {
      if (this.#method === null) throw new UnsolicitedBytes('unsolicited bytes: no request was pending');
      const next = this.#step(this.#method, all, at);
      if (next === null) {
        this.#held = Buffer.from(all.subarray(at)); // a copy: the read buffer is reused
        return;
      }
      at = next;
    }
  }

  /**
   * Handles the end of the connection.
   * @returns whether this end completes a response without a length
   */
  end(): boolean {
    if (this.#method === null || this.#part !== 'until close') return false;
    this.#over();
    return true;
  }

  /**
   * Parses one part of a response, starting at index `at`.
   * @returns the index of the next part; null if this part is incomplete
   */
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
    if ((end < 0 ? bytes.length : end) - at > maxHeadBytes)
      throw new MalformedResponse(`response head longer than ${maxHeadBytes} bytes`);
    if (end < 0) {
      checkBeginning(bytes.toString('latin1', at));
      return null;
    }
    const head = parseResponseHead(bytes.toString('latin1', at, end), method);
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
      throw new MalformedResponse('chunk line or trailer section too long');
    }
    if (end < 0) return null;
    const line = bytes.toString('latin1', at, end);
    if (!line.endsWith('\r')) throw new MalformedResponse('chunk or trailer line without CRLF');
    this.#endLine(line.slice(0, -1));
    return end + 1;
  }

  #endLine(line: string): void {
    if (this.#part === 'chunk end') {
      if (line !== '') throw new MalformedResponse('chunk data longer than the chunk size');
      this.#part = 'chunk line';
    } else if (this.#part === 'chunk line') {
      const size = chunkLine.exec(line)?.[1];
      if (size === undefined) throw new MalformedResponse('invalid chunk size');
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
