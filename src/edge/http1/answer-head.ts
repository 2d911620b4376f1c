import { memoize } from '../../policy/memoize.js';

/** Names and values, flat; those of a header that comes again stand together. */
export type ResponseHeaders = (string | string[])[];

/** The head of an upstream's answer. */
export interface AnswerHead {
  readonly statusCode: number;
  /** Names in lower case; the values of one that comes again stand together. */
  readonly headers: ResponseHeaders;
  /** Bytes of the body, `chunked`, or `close` where only the end of the connection ends it. */
  readonly framing: number | 'chunked' | 'close';
  /** Whether the connection can carry another request. */
  readonly keepsConnection: boolean;
  /** Seconds for which the upstream says that it keeps an idle connection; null where it does not say. */
  readonly keepAliveSeconds: number | null;
}

/** What is no answer of HTTP/1.x, or one whose end two readers could see in two places. */
export class MalformedAnswer extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'MalformedAnswer';
  }
}

/** The space in front of a reason that is empty is left out by some (RFC 9112 4). */
const statusLine = /^HTTP\/1\.[01] [1-9]\d\d(?: |\r\n|$)/;
const versionStart = 'HTTP/1.';
const bareLineFeed = /(?:^|[^\r])\n/;
const fieldName = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
/** RFC 9110 5.5. A bare CR or LF would begin another line for other readers. */
const controlCharacter = /[\0-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)|(?<!\r)\n/;
const decimalLength = /^\d{1,15}$/;
const keepAliveTimeout = /(?:^|[,;\s])timeout=(\d{1,6})(?:$|[,;\s])/i;

/** What the headers of an answer say about its end and its connection. */
class Said {
  length: number | null = null;
  isChunked = false;
  /** In lower case. */
  connection: string | null = null;
  keepAliveSeconds: number | null = null;
}

/**
 * Reads the head of an answer. What another reader might understand otherwise is refused.
 * @param text in latin1, without the empty line behind it
 * @param method of the request, on which it depends whether there is a body
 * @throws MalformedAnswer
 */
export function readAnswerHead(text: string, method: string): AnswerHead {
  if (controlCharacter.test(text)) throw new MalformedAnswer('its head has control characters');
  if (!statusLine.test(text)) throw new MalformedAnswer('it does not begin as an answer of HTTP/1.1 does');
  const isOld = text[7] === '0';
  const statusCode = Number(text.slice(9, 12));
  const headers: ResponseHeaders = [];
  const said = new Said();
  for (let end = lineEnd(text, 0); end < text.length;) {
    const start = end + 2;
    end = lineEnd(text, start);
    const colon = text.indexOf(':', start);
    if (colon < 0 || colon >= end) throw new MalformedAnswer('a line of its head is no header');
    const name = headerName(text.slice(start, colon));
    const value = trimmed(text, colon + 1, end);
    note(said, name, value);
    add(headers, name, value);
  }
  const { isChunked, length, connection, keepAliveSeconds } = said;
  if (isChunked && (length !== null || isOld)) throw new MalformedAnswer('its body has two ends');
  const framing = framingOf(statusCode, method, said);
  const isKept = connection === null ? !isOld : keepsConnection(connection, isOld);
  const keeps = isKept && !mayGoOn(method, framing, said);
  return { statusCode, headers, framing, keepsConnection: keeps, keepAliveSeconds };
}

/**
 * Refuses the beginning of what will never be a head: its rest would be waited for until the deadline.
 * @throws MalformedAnswer
 */
export function checkBeginning(text: string): void {
  if (!text.startsWith(versionStart.slice(0, text.length))) {
    throw new MalformedAnswer('it does not begin as an answer of HTTP/1.1 does');
  }
  if (bareLineFeed.test(text)) throw new MalformedAnswer('a line of its head does not end');
}

/** Where a line ends; the last one has no line end behind it. */
function lineEnd(text: string, start: number): number {
  const end = text.indexOf('\r\n', start);
  return end < 0 ? text.length : end;
}

/** The name of a header in lower case. */
const headerName = memoize(1_000, (written) => {
  if (!fieldName.test(written)) throw new MalformedAnswer('a header of it has a name that is none');
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

function note(said: Said, name: string, value: string): void {
  switch (name) {
    case 'content-length':
      if (said.length !== null || !decimalLength.test(value)) throw new MalformedAnswer('its length is unclear');
      said.length = Number(value);
      break;
    case 'transfer-encoding':
      if (said.isChunked || value.toLowerCase() !== 'chunked') throw new MalformedAnswer('its coding is not chunked');
      said.isChunked = true;
      break;
    case 'connection':
      said.connection = said.connection === null ? value.toLowerCase() : `${said.connection},${value.toLowerCase()}`;
      break;
    case 'keep-alive':
      said.keepAliveSeconds = secondsOf(value);
      break;
  }
}

/** What a service says in each of its answers. */
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

/** RFC 9112 6.3 */
function framingOf(statusCode: number, method: string, { isChunked, length }: Said): AnswerHead['framing'] {
  if (method === 'HEAD' || statusCode < 200 || statusCode === 204 || statusCode === 304) return 0;
  return isChunked ? 'chunked' : (length ?? 'close');
}

/**
 * Whether more may come behind what is the end of the answer. Some services send a body where none can be (RFC 9112 6.3),
 * and on a kept connection it would be taken for the answer to the next request.
 */
function mayGoOn(method: string, framing: AnswerHead['framing'], { isChunked, length }: Said): boolean {
  if (framing === 0) return method === 'HEAD' || isChunked || (length ?? 0) > 0;
  return framing === 'close';
}

function keepsConnection(connection: string, isOld: boolean): boolean {
  if (connection === 'keep-alive') return true;
  const tokens = connection.split(',').map((token) => token.trim());
  return !tokens.includes('close') && (!isOld || tokens.includes('keep-alive'));
}
