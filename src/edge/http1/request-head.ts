import { memoize } from '../../policy/memoize.js';

/** A request line, its headers and the body framing. */
export interface RequestHead {
  readonly method: string;
  /** Path and query of the request target. */
  readonly target: string;
  /** Value of the Host header. */
  readonly host: string;
  /** Alternating header names and values, without hop-by-hop headers. */
  readonly headers: readonly string[];
  /** Body length in bytes, `chunked` if the length is unknown, null without a body. */
  readonly body: number | 'chunked' | null;
  /** Whether the connection may be reused for another request. */
  readonly keepsConnection: boolean;
}

const fieldName = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const isFieldName = memoize(1_000, (name) => fieldName.test(name));
const notInTarget = /[^\x21-\xff]/;
/** Matches a character that RFC 9110 5.5 forbids in a header value. */
const notInValue = /[^\t\x20-\x7e\x80-\xff]/;
/**
 * Methods whose requests usually have a body. Without a body, such a request gets `content-length: 0` (RFC 9110 8.6).
 */
const methodsWithBodies: ReadonlySet<string> = new Set(['POST', 'PUT', 'PATCH']);

/**
 * Serializes a request head as latin1, including the empty line at its end.
 * @throws Error for an invalid target or header. Node's parser has already rejected these in the client's request.
 */
export function writeRequestHead({ method, target, host, headers, body, keepsConnection }: RequestHead): string {
  if (notInTarget.test(target)) throw new Error('invalid character in the request target');
  // The gateway closes the connection after the response to a HEAD, so it announces the close to the service.
  const connection = keepsConnection && method !== 'HEAD' ? 'keep-alive' : 'close';
  let head = `${method} ${target} HTTP/1.1\r\nhost: ${host}\r\nconnection: ${connection}\r\n`;
  // The body framing precedes the client's headers. A service that drops the last of too many headers would otherwise
  // see no body.
  if (body === 'chunked') head += 'transfer-encoding: chunked\r\n';
  else if (body !== null || methodsWithBodies.has(method)) head += `content-length: ${body ?? 0}\r\n`;
  for (let index = 0; index + 1 < headers.length; index += 2) {
    const name = headers[index] ?? '';
    const value = headers[index + 1] ?? '';
    if (name.length === 14 && name.toLowerCase() === 'content-length') continue; // written above with the actual length
    if (!isFieldName(name) || notInValue.test(value)) throw new Error('invalid character in a request header');
    head += `${name}: ${value}\r\n`;
  }
  return `${head}\r\n`;
}
