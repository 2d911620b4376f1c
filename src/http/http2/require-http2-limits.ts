import { GatewayError } from '../errors.js';
import type { Exchange } from '../exchange.js';
import { http2RequestOf } from './http2-message.js';

/** RFC 9113 6.5.2: what a field counts beside its name and its value. */
export const fieldOverheadBytes = 32;

const printable = /^[\x21-\x7e]*$/;

/** The size of a field list as `SETTINGS_MAX_HEADER_LIST_SIZE` counts it. */
export function headerListBytes(fields: readonly string[]): number {
  let bytes = (fields.length / 2) * fieldOverheadBytes;
  for (const text of fields) bytes += text.length; // one byte a character, as Node reads them
  return bytes;
}

/**
 * Refuses of an HTTP/2 request what HTTP/1.1's parser would refuse, or what could be read in two ways. nghttp2 lets
 * every path pass as long as the scheme is not http or https, and every method.
 * @throws GatewayError
 */
export function requireHttp2Limits({ request, target }: Exchange, maxHeaderBytes: number): void {
  const http2 = http2RequestOf(request);
  if (http2 === null) return;
  if (headerListBytes(http2.rawHeaders) > maxHeaderBytes) {
    throw new GatewayError('headers_too_large', `the header list is above ${maxHeaderBytes} bytes`);
  }
  const sentMethod = http2.rawHeaders[http2.rawHeaders.indexOf(':method') + 1];
  if (sentMethod !== http2.method) throw new GatewayError('malformed_request', `the method ${sentMethod ?? ''}`);
  if (http2.method !== 'CONNECT' && (target.absolute !== null || !/^(?:\*$|\/)/.test(target.path))) {
    throw new GatewayError('malformed_request', 'a :path that is none');
  }
  if (!printable.test(target.query)) throw new GatewayError('malformed_request', 'a query that is none');
}
