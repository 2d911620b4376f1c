import { memoize } from '../../policy/memoize.js';
import { MalformedResponse, type ParserEvents, type ResponseHead, type ResponseHeaders } from './response-reader.js';

/** Error for bytes received while no request is pending. They could be taken for the response to the next request. */
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
   * Parses received bytes. Bytes without a pending request are an error. Otherwise they would be read as the start of
   * the next response, which could belong to another merchant.
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
   * @returns whether this end completes a response whose body has no length
   */
  end(): boolean {
    if (this.#method === null || this.#part !== 'until close') return false;
    this.#over();
    return true;
  }

  /**
   * Parses one part of a response, starting at index `at`.
   * @returns the index at which parsing continues; null if more bytes are needed first
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

/** Matches a status line. RFC 9112 4 requires a space before an empty reason phrase, but some services omit it. */
const statusLine = /^HTTP\/1\.[01] [1-9]\d\d(?: |\r\n|$)/;
const bareLineFeed = /(?:^|[^\r])\n/;
const fieldName = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
/** Matches control characters (RFC 9110 5.5) and a bare CR or LF, at which some parsers end a line. */
const controlCharacter = /[\0-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)|(?<!\r)\n/;
const decimalLength = /^\d{1,15}$/;
const keepAliveTimeout = /(?:^|[,;\s])timeout=(\d{1,6})(?:$|[,;\s])/i;

/** The response headers that determine body framing and connection reuse. */
class FramingHeaders {
  length: number | null = null;
  isChunked = false;
  /** Value of the Connection header in lower case; empty without this header. */
  connection = '';
  keepAliveSeconds: number | null = null;
}

/**
 * Parses a response head. Rejects everything that another parser might interpret differently.
 * @param text the head, decoded as latin1, without the empty line that ends it
 * @param method the request method; it determines whether the response has a body
 * @throws MalformedResponse
 */
function parseResponseHead(text: string, method: string): ResponseHead {
  if (controlCharacter.test(text)) throw new MalformedResponse('control characters in the response head');
  if (!statusLine.test(text)) throw new MalformedResponse('invalid HTTP/1.1 status line');
  const isOld = text[7] === '0';
  const statusCode = Number(text.slice(9, 12));
  const headers: ResponseHeaders = [];
  const framingHeaders = new FramingHeaders();
  for (let end = lineEnd(text, 0); end < text.length;) {
    const start = end + 2;
    end = lineEnd(text, start);
    const colon = text.indexOf(':', start);
    if (colon < 0 || colon >= end) throw new MalformedResponse('malformed header line');
    const name = headerName(text.slice(start, colon));
    const value = trimmed(text, colon + 1, end);
    note(framingHeaders, name, value);
    add(headers, name, value);
  }
  const { isChunked, length, connection, keepAliveSeconds } = framingHeaders;
  if (isChunked && (length !== null || isOld)) {
    throw new MalformedResponse('both Content-Length and Transfer-Encoding, or Transfer-Encoding in HTTP/1.0');
  }
  const framing = framingOf(statusCode, method, framingHeaders);
  const keeps = keepsConnection(connection, isOld) && !mayHaveSurplusBytes(method, framing, framingHeaders);
  return { statusCode, headers, framing, keepsConnection: keeps, keepAliveSeconds };
}

/**
 * Checks the first bytes of an incomplete response head. If they can never become a valid head, fails immediately, so
 * that the request does not wait for the rest until the timeout.
 * @throws MalformedResponse
 */
function checkBeginning(text: string): void {
  if (!text.startsWith('HTTP/1.'.slice(0, text.length))) throw new MalformedResponse('invalid HTTP/1.1 status line');
  if (bareLineFeed.test(text)) throw new MalformedResponse('header line without CRLF');
}

/** Returns the index of the end of a line; for the last line, which has no CRLF, the end of the text. */
function lineEnd(text: string, start: number): number {
  const end = text.indexOf('\r\n', start);
  return end < 0 ? text.length : end;
}

/** Validates a header name and returns it in lower case. */
const headerName = memoize(1_000, (written) => {
  if (!fieldName.test(written)) throw new MalformedResponse('invalid header name');
  return written.toLowerCase();
});

function trimmed(text: string, start: number, end: number): string {
  let [from, to] = [start, end];
  while (from < to && isBlank(text, from)) from += 1;
  while (to > from && isBlank(text, to - 1)) to -= 1;
  return text.slice(from, to);
}

function isBlank(text: string, at: number): boolean {
  return text[at] === ' ' || text[at] === '\t';
}

function note(framingHeaders: FramingHeaders, name: string, value: string): void {
  switch (name) {
    case 'content-length':
      if (framingHeaders.length !== null || !decimalLength.test(value))
        throw new MalformedResponse('invalid or repeated Content-Length');
      framingHeaders.length = Number(value);
      break;
    case 'transfer-encoding':
      if (framingHeaders.isChunked || value.toLowerCase() !== 'chunked')
        throw new MalformedResponse('invalid or repeated Transfer-Encoding');
      framingHeaders.isChunked = true;
      break;
    case 'connection':
      framingHeaders.connection += (framingHeaders.connection === '' ? '' : ',') + value.toLowerCase();
      break;
    case 'keep-alive':
      framingHeaders.keepAliveSeconds = secondsOf(value);
      break;
  }
}

/** Returns `timeout` of a Keep-Alive header; null without it. Cached: a service sends the same value every time. */
const secondsOf = memoize(100, (value) => {
  const seconds = keepAliveTimeout.exec(value)?.[1];
  return seconds === undefined ? null : Number(seconds);
});

function add(headers: ResponseHeaders, name: string, value: string): void {
  for (let index = 0; index < headers.length; index += 2) {
    if (headers[index] !== name) continue;
    const earlier = headers[index + 1] ?? '';
    if (typeof earlier === 'string') headers[index + 1] = [earlier, value];
    else earlier.push(value);
    return;
  }
  headers.push(name, value);
}

/** Determines the framing of the response body (RFC 9112 6.3). */
function framingOf(statusCode: number, method: string, { isChunked, length }: FramingHeaders): ResponseHead['framing'] {
  if (method === 'HEAD' || statusCode < 200 || statusCode === 204 || statusCode === 304) return 0;
  return isChunked ? 'chunked' : (length ?? 'close');
}

/**
 * Whether surplus bytes could follow the response, so the connection must close. Some services send a forbidden body
 * (RFC 9112 6.3), which would be read as the next response. A body without a length ends only with the connection.
 */
function mayHaveSurplusBytes(
  method: string,
  framing: ResponseHead['framing'],
  { isChunked, length }: FramingHeaders,
): boolean {
  if (framing === 0) return method === 'HEAD' || isChunked || (length ?? 0) > 0;
  return framing === 'close';
}

function keepsConnection(connection: string, isOld: boolean): boolean {
  if (connection === 'keep-alive') return true;
  if (connection === '') return !isOld;
  const tokens = connection.split(',').map((token) => token.trim());
  return !tokens.includes('close') && (!isOld || tokens.includes('keep-alive'));
}
