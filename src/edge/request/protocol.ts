import { parseIpAddress } from '../../policy/ip-address.js';
import { GatewayError } from './errors.js';
import type { RequestData, RequestTarget } from './request-data.js';

/** How large the head of a request may be. */
export interface HeadLimits {
  /** Of the request line and the header lines, each as name, colon, blank, value and line end. */
  readonly headerBytes: number;
  /** Of the request target. */
  readonly targetBytes: number;
}

const versions: readonly string[] = ['1.0', '1.1'];
/**
 * RFC 3986 3.2.2 and 3.2.3: a registered name or IPv4 address, or an IP literal, and perhaps a port. Without the comma that
 * a name may have: who joins repeated headers reads it as two hosts.
 */
const hostForm =
  /^(?:[A-Za-z0-9\-._~!$&'()*+;=]+|\[[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*\])(?::(?:[0-5]?\d{1,4}|6[0-4]\d{3}|65[0-4]\d{2}|655[0-2]\d|6553[0-5])?)?$/;

/**
 * Refuses what Node lets pass and RFC 9112 does not: a version that it does not know (`GET /` without one is answered
 * as if it were 1.0), a missing, repeated or malformed Host, a target in absolute form that names another host, every
 * transfer coding but one `chunked`, which Node would drop from the request on its way, and a head above its limits, of
 * which Node counts neither line ends nor colons.
 * @throws GatewayError
 */
export function requireProtocol(request: RequestData, limits: HeadLimits): void {
  const { target } = request;
  const { host: hosts, transferEncoding, contentLength } = request.headers;
  requireShortTarget(target, limits);
  requireShortHead(request, limits);
  if (!versions.includes(request.httpVersion)) {
    throw new GatewayError('malformed_request', `HTTP version ${request.httpVersion}`);
  }
  if (hosts.length > 1 || (hosts.length === 0 && request.httpVersion !== '1.0')) {
    throw new GatewayError('invalid_host', `${hosts.length} Host headers`);
  }
  const [host] = hosts;
  if (host !== undefined && !isHost(host)) throw new GatewayError('invalid_host', 'the Host header is malformed');
  // RFC 9112 3.2.2 lets such a target override Host; whoever reads Host instead would decide about another origin.
  if (target.absolute !== null && !isSameHost(target.absolute, host)) {
    throw new GatewayError('invalid_host', 'the request target names another host than the Host header');
  }
  if (transferEncoding.length === 0) return;
  const onlyChunked = transferEncoding.length === 1 && transferEncoding[0]?.toLowerCase() === 'chunked';
  if (!onlyChunked || contentLength.length > 0 || request.httpVersion !== '1.1') {
    throw new GatewayError('malformed_request', 'a transfer coding other than one chunked, alone, on HTTP/1.1');
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

function requireShortTarget(target: RequestTarget, { headerBytes, targetBytes }: HeadLimits): void {
  const bytes = bytesOf(target);
  if (bytes > Math.min(targetBytes, headerBytes)) {
    throw new GatewayError('target_too_long', `the request target has ${bytes} bytes`);
  }
}

function requireShortHead({ method, target, rawHeaders }: RequestData, { headerBytes }: HeadLimits): void {
  let bytes = method.length + bytesOf(target) + '  HTTP/1.1\r\n\r\n'.length;
  for (const part of rawHeaders) bytes += part.length + 2; // each name with its colon and blank, each value with its line end
  if (bytes > headerBytes) throw new GatewayError('headers_too_large', `the head has ${bytes} bytes`);
}

function bytesOf({ absolute, path, query }: RequestTarget): number {
  const origin = absolute === null ? 0 : absolute.scheme.length + '://'.length + absolute.authority.length;
  return origin + path.length + query.length;
}
