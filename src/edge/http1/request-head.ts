import { memoize } from '../../policy/memoize.js';

/** A request's line and headers, and how its body is framed. */
export interface RequestHead {
  readonly method: string;
  /** Path and query. */
  readonly target: string;
  /** What the upstream is called. */
  readonly host: string;
  /** Names and values, flat, without those of this hop. */
  readonly headers: readonly string[];
  /** Bytes of the body, `chunked` where nobody knows them, null where there is none. */
  readonly body: number | 'chunked' | null;
  /** Whether the connection may carry another request. */
  readonly keepsConnection: boolean;
}

const fieldName = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const isFieldName = memoize(1_000, (name) => fieldName.test(name));
const notInTarget = /[^\x21-\xff]/;
/** RFC 9110 5.5 */
const notInValue = /[^\t\x20-\x7e\x80-\xff]/;
/** RFC 9110 8.6: methods of whose requests a body is expected, so that they say that there is none. */
const methodsWithBodies: ReadonlySet<string> = new Set(['POST', 'PUT', 'PATCH']);

/**
 * Writes the head of a request, as latin1, with the empty line behind it.
 * @throws Error for what would not be read as it is meant; the parser of the caller's request has refused it before
 */
export function writeRequestHead({ method, target, host, headers, body, keepsConnection }: RequestHead): string {
  if (notInTarget.test(target)) throw new Error('the target has a character that it must not have');
  // The answer to a HEAD ends its connection, and the service is told so.
  const connection = keepsConnection && method !== 'HEAD' ? 'keep-alive' : 'close';
  let head = `${method} ${target} HTTP/1.1\r\nhost: ${host}\r\nconnection: ${connection}\r\n`;
  // In front of the client's: of too many a service drops the last ones, and would see no body without it.
  if (body === 'chunked') head += 'transfer-encoding: chunked\r\n';
  else if (body !== null || methodsWithBodies.has(method)) head += `content-length: ${body ?? 0}\r\n`;
  for (let index = 0; index + 1 < headers.length; index += 2) {
    const name = headers[index] ?? '';
    const value = headers[index + 1] ?? '';
    if (name.length === 14 && name.toLowerCase() === 'content-length') continue; // said above, of what is sent
    if (!isFieldName(name) || notInValue.test(value)) throw new Error('a header has a character that it must not have');
    head += `${name}: ${value}\r\n`;
  }
  return `${head}\r\n`;
}
