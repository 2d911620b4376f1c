import type { IncomingMessage } from 'node:http';
import { GatewayError } from './errors.js';
import { http2RequestOf } from './http2/http2-message.js';
import type { DecisiveHeaders } from './request-headers.js';

const versions: readonly string[] = ['1.0', '1.1'];
/** RFC 3986 3.2.2 and 3.2.3: a registered name or IPv4 address, or an IP literal, and perhaps a port. */
const hostForm = /^(?:[A-Za-z0-9\-._~!$&'()*+,;=]+|\[[0-9A-Fa-f:.]+\])(?::\d{0,5})?$/;

/**
 * Refuses what Node lets pass and RFC 9112 does not: a version that it does not know (`GET /` without one is answered
 * as if it were 1.0), a missing, repeated or malformed Host, and every transfer coding but one `chunked`, which Node
 * would drop from the request on its way.
 * @throws GatewayError
 */
export function requireProtocol(request: IncomingMessage, headers: DecisiveHeaders): void {
  const { host: hosts, transferEncoding, contentLength } = headers;
  const overHttp2 = http2RequestOf(request) !== null;
  if (!overHttp2 && !versions.includes(request.httpVersion)) {
    throw new GatewayError('malformed_request', `HTTP version ${request.httpVersion}`);
  }
  if (hosts.length > 1 || (hosts.length === 0 && request.httpVersion !== '1.0')) {
    throw new GatewayError('invalid_host', `${hosts.length} Host headers`);
  }
  const [host] = hosts;
  if (host !== undefined && !hostForm.test(host))
    throw new GatewayError('invalid_host', 'the Host header is malformed');
  if (transferEncoding.length === 0) return;
  const onlyChunked = transferEncoding.length === 1 && transferEncoding[0]?.toLowerCase() === 'chunked';
  if (!onlyChunked || contentLength.length > 0 || request.httpVersion !== '1.1') {
    throw new GatewayError('malformed_request', 'a transfer coding other than one chunked, alone, on HTTP/1.1');
  }
}
