import { parseIpAddress } from '../../policy/ip-address.js';
import { GatewayError } from './errors.js';
import type { RequestData, RequestTarget } from './request-data.js';

/** Limits for the head of a request, in bytes. */
export interface HeadLimits {
  /** Limit for the request line plus all header lines. Each header line counts name, colon, space, value and CRLF. */
  readonly headerBytes: number;
  /** Limit for the request target, which also counts towards `headerBytes`. */
  readonly targetBytes: number;
}

const versions: readonly string[] = ['1.0', '1.1'];
/**
 * Matches a valid Host value: registered name, IPv4 address or IP literal, with an optional port (RFC 3986 3.2.2 and
 * 3.2.3). A comma does not match, although RFC 3986 allows it in a name. A recipient that joins repeated headers with
 * commas could take a name with a comma for two hosts.
 */
const hostForm =
  /^(?:[A-Za-z0-9\-._~!$&'()*+;=]+|\[[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*\])(?::(?:[0-5]?\d{1,4}|6[0-4]\d{3}|65[0-4]\d{2}|655[0-2]\d|6553[0-5])?)?$/;

/**
 * Rejects requests that Node accepts, but that RFC 9112 or the limits forbid:
 * - an unknown HTTP version (Node treats `GET /` without a version as 1.0);
 * - a repeated or malformed Host, or a missing one in HTTP/1.1;
 * - a target in absolute form whose host differs from Host;
 * - any transfer coding other than a single `chunked`, because the gateway does not forward the name of the coding;
 * - Transfer-Encoding together with Content-Length, or in HTTP/1.0;
 * - a head above its limits (Node counts neither line ends nor colons).
 * @throws GatewayError
 */
export function requireProtocol(request: RequestData, limits: HeadLimits): void {
  const { target } = request;
  const { host: hosts, transferEncoding, contentLength } = request.headers;
  requireShortHead(request, limits);
  if (!versions.includes(request.httpVersion)) {
    throw new GatewayError('malformed_request', `unsupported HTTP version ${request.httpVersion}`);
  }
  if (hosts.length > 1 || (hosts.length === 0 && request.httpVersion !== '1.0')) {
    throw new GatewayError('invalid_host', `expected one Host header, got ${hosts.length}`);
  }
  const [host] = hosts;
  if (host !== undefined && !isHost(host)) throw new GatewayError('invalid_host', 'the Host header is malformed');
  // RFC 9112 3.2.2 lets a target in absolute form override Host. A service that reads Host instead would see another
  // origin, so the target and Host must name the same host.
  if (target.absolute !== null && !isSameHost(target.absolute, host)) {
    throw new GatewayError('invalid_host', 'the host of the request target differs from the Host header');
  }
  if (transferEncoding.length === 0) return;
  const onlyChunked = transferEncoding.length === 1 && transferEncoding[0]?.toLowerCase() === 'chunked';
  if (!onlyChunked || contentLength.length > 0 || request.httpVersion !== '1.1') {
    throw new GatewayError(
      'malformed_request',
      'the only supported Transfer-Encoding is "chunked", in HTTP/1.1 and without Content-Length',
    );
  }
}

function isSameHost({ scheme, authority }: { scheme: string; authority: string }, host: string | undefined): boolean {
  const defaultPort = scheme === 'https' ? /:(?:443)?$/ : /:(?:80)?$/;
  const plain = (name: string): string => name.toLowerCase().replace(defaultPort, '');
  return isHost(authority) && host !== undefined && plain(authority) === plain(host);
}

function isHost(text: string): boolean {
  return hostForm.test(text) && (!text.startsWith('[') || parseIpAddress(text.slice(1, text.indexOf(']'))) !== null);
}

function requireShortHead({ method, target, rawHeaders }: RequestData, { headerBytes, targetBytes }: HeadLimits): void {
  const ofTarget = bytesOf(target);
  const limit = Math.min(targetBytes, headerBytes);
  if (ofTarget > limit) {
    throw new GatewayError('target_too_long', `the request target has ${ofTarget} bytes; the limit is ${limit}`);
  }
  let bytes = method.length + ofTarget + '  HTTP/1.1\r\n\r\n'.length;
  // Each name is followed by a colon and a space, each value by CRLF: two bytes in both cases.
  for (const part of rawHeaders) bytes += part.length + 2;
  if (bytes > headerBytes)
    throw new GatewayError(
      'headers_too_large',
      `the head of the request has ${bytes} bytes; the limit is ${headerBytes}`,
    );
}

function bytesOf({ absolute, path, query }: RequestTarget): number {
  const origin = absolute === null ? 0 : absolute.scheme.length + '://'.length + absolute.authority.length;
  return origin + path.length + query.length;
}
