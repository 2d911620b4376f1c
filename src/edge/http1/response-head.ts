import { memoize } from '../../policy/memoize.js';

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
  /** `timeout` of the Keep-Alive header in seconds; null if the upstream sent none. */
  readonly keepAliveSeconds: number | null;
}

/** Error for bytes that are not an HTTP/1.x response, or whose end two parsers could see at different places. */
export class MalformedResponse extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'MalformedResponse';
  }
}

/** Matches a status line. RFC 9112 4 requires a space before an empty reason phrase, but some services omit it. */
const statusLine = /^HTTP\/1\.[01] [1-9]\d\d(?: |\r\n|$)/;
const versionStart = 'HTTP/1.';
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
  /** Value of the Connection header in lower case; null without this header. */
  connection: string | null = null;
  keepAliveSeconds: number | null = null;
}

/**
 * Parses a response head. Rejects everything that another parser might interpret differently.
 * @param text the head, decoded as latin1, without the empty line that ends it
 * @param method the request method; it determines whether the response has a body
 * @throws MalformedResponse
 */
export function parseResponseHead(text: string, method: string): ResponseHead {
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
  const isKept = connection === null ? !isOld : keepsConnection(connection, isOld);
  const keeps = isKept && !mayHaveSurplusBytes(method, framing, framingHeaders);
  return { statusCode, headers, framing, keepsConnection: keeps, keepAliveSeconds };
}

/**
 * Checks the first bytes of an incomplete response head. Bytes that can never become a valid head fail immediately,
 * instead of waiting for the rest until the timeout.
 * @throws MalformedResponse
 */
export function checkBeginning(text: string): void {
  if (!text.startsWith(versionStart.slice(0, text.length))) {
    throw new MalformedResponse('invalid HTTP/1.1 status line');
  }
  if (bareLineFeed.test(text)) throw new MalformedResponse('header line without CRLF');
}

/** Returns the index of the end of a line. The last line has no CRLF. */
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
  const code = text.charCodeAt(at);
  return code === 32 || code === 9;
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
      framingHeaders.connection =
        framingHeaders.connection === null
          ? value.toLowerCase()
          : `${framingHeaders.connection},${value.toLowerCase()}`;
      break;
    case 'keep-alive':
      framingHeaders.keepAliveSeconds = secondsOf(value);
      break;
  }
}

/** Cache of the last Keep-Alive value and its timeout, because a service sends the same value in every response. */
let latest: { readonly value: string; readonly seconds: number | null } = { value: '', seconds: null };

function secondsOf(value: string): number | null {
  if (latest.value !== value) {
    const seconds = keepAliveTimeout.exec(value)?.[1];
    latest = { value, seconds: seconds === undefined ? null : Number(seconds) };
  }
  return latest.seconds;
}

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
 * Whether bytes may follow the end of the response. Some services send a body although RFC 9112 6.3 forbids it. On a
 * reused connection, that body would be read as the response to the next request.
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
  const tokens = connection.split(',').map((token) => token.trim());
  return !tokens.includes('close') && (!isOld || tokens.includes('keep-alive'));
}
