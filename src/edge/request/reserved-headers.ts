import { memoize } from '../../policy/memoize.js';
import type { HeaderList } from './request-data.js';

/** Maximum number of header names to memoize. */
const mostNames = 1_000;

/** Hop-by-hop headers (RFC 9110 7.6.1), and `expect`, which the gateway handles itself. */
const hopByHopNames: ReadonlySet<string> = new Set([
  'connection',
  'expect',
  'http2-settings',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);

/**
 * Client headers that are never forwarded, as normalized by `folded`; a final `*` matches any suffix. Services trust
 * these headers because they expect the proxy in front to set them, and this gateway is that proxy.
 */
export const reservedNames: readonly string[] = [
  // Identity of the caller: a service must receive only values that the gateway has verified.
  ...['x-api-key', 'x-merchant-*', 'x-gateway-*', 'x-request-id'],
  // Services would read a user name from these headers, but the gateway authenticates only merchants.
  ...['remote-*', 'x-remote-*', 'x-auth-request-*', 'x-authenticated-*', 'x-webauth-*'],
  // Address, protocol and host of the client: services must get them only from the gateway's own X-Forwarded-* headers.
  ...['forwarded', 'forwarded-for', 'x-forwarded', 'x-forwarded-*', 'http-x-forwarded-*', 'x-real-ip'],
  ...['x-scheme', 'x-url-scheme', 'front-end-https', 'x-host', 'x-http-host-override'],
  // Address of the client in the headers of CDNs, clouds, load balancers and application servers.
  ...['client-ip', 'x-client-ip', 'http-client-ip', 'cluster-client-ip', 'x-cluster-client-ip', 'x-originating-ip'],
  ...[
    'true-client-ip',
    'x-true-client-ip',
    'cf-connecting-ip',
    'cf-connecting-ipv6',
    'cf-pseudo-ipv4',
    'x-proxyuser-ip',
  ],
  ...['fastly-client-ip', 'fly-client-ip', 'incap-client-ip', 'x-nf-client-connection-ip', 'cloudfront-viewer-address'],
  ...['x-azure-clientip', 'x-azure-socketip', 'appengine-user-ip', 'x-appengine-user-ip', 'x-appengine-remote-addr'],
  ...['x-envoy-external-address', 'proxy-client-ip', 'wl-proxy-client-ip'],
  // With these headers, a service would execute a method other than the one whose permission was checked.
  ...['x-http-method', 'x-http-method-override', 'x-method-override'],
  // With these headers, a service would serve another path (IIS, Envoy, Symfony CVE-2018-14773), or make the proxy in
  // front of it fetch another path (Rack CVE-2025-61780).
  ...['x-original-*', 'x-envoy-original-*', 'x-rewrite-url', 'x-override-url', 'x-accel-mapping', 'x-sendfile-type'],
  // CGI copies the `Proxy` header into the variable HTTP_PROXY, which many HTTP clients use as their proxy (httpoxy
  // attack).
  'proxy',
  // The gateway takes part in the trace, so it sends its own values (W3C Trace Context).
  ...['traceparent', 'tracestate'],
  // The gateway sends its own values: each upstream has its own host name, and each connection its own body framing.
  ...['host', 'content-length', ...hopByHopNames],
];
const exactNames: ReadonlySet<string> = new Set(reservedNames.filter((name) => !name.endsWith('*')));
const prefixes = reservedNames.filter((name) => name.endsWith('*')).map((name) => name.slice(0, -1));

/** The usual values of Connection. They name no other header. */
const persistenceOnly: ReadonlySet<string> = new Set(['keep-alive', 'close', 'Keep-Alive', 'Close']);
const noNames: ReadonlySet<string> = new Set();

/**
 * Filters the headers of a client's request for the upstream. Drops reserved headers, hop-by-hop headers and headers
 * that Connection names, in every spelling that a service could treat as equal.
 * @param forwarded the list to append to
 * @returns alternating names and values
 */
export function forwardableHeaders(rawHeaders: readonly string[], forwarded: string[] = []): string[] {
  const named = namedByClient(rawHeaders);
  for (let index = 0; index + 1 < rawHeaders.length; index += 2) {
    const name = rawHeaders[index] ?? '';
    if (!isForwardable(name) || (named !== noNames && named.has(folded(name)))) continue;
    forwarded.push(name, rawHeaders[index + 1] ?? '');
  }
  return forwarded;
}

/**
 * Normalizes a header name. CGI, PHP, WSGI and others map `X.Merchant!Id` and `x-merchant-id` to the same variable, so
 * this function must map them to the same name. These services replace every character that is not alphanumeric with
 * `_`; this function uses `-`.
 */
const folded = memoize(mostNames, (name) => name.toLowerCase().replace(/[^a-z0-9]/g, '-'));

/**
 * Whether a client header is forwarded, judged by its name alone. Headers that the Connection header names are filtered
 * separately.
 */
const isForwardable = memoize(mostNames, (name) => {
  if (name.toLowerCase() === 'content-length') return true; // this spelling frames the body; drop all others
  const spelling = folded(name);
  return !exactNames.has(spelling) && !prefixes.some((prefix) => spelling.startsWith(prefix));
});

/**
 * Filters the headers of an upstream response for the client. Drops hop-by-hop headers, headers that Connection names,
 * and `x-request-id`. Expects names in lower case.
 */
export function returnableHeaders(headers: Readonly<HeaderList>): HeaderList {
  const named = namedByConnection(headers);
  const returned: HeaderList = [];
  for (let index = 0; index + 1 < headers.length; index += 2) {
    const name = String(headers[index]);
    if (hopByHopNames.has(name) || named.has(name) || name === 'x-request-id') continue;
    returned.push(name, headers[index + 1] ?? '');
  }
  return returned;
}

function namedByConnection(headers: Readonly<HeaderList>): ReadonlySet<string> {
  for (let index = 0; index + 1 < headers.length; index += 2) {
    if (headers[index] === 'connection') return tokensOf([headers[index + 1] ?? ''].flat());
  }
  return noNames;
}

/**
 * Returns the header names in the client's Connection header, normalized by `folded`. Without normalization, a
 * hop-by-hop header in another spelling would reach a service.
 */
function namedByClient(rawHeaders: readonly string[]): ReadonlySet<string> {
  const values: string[] = [];
  for (let index = 0; index + 1 < rawHeaders.length; index += 2) {
    if (rawHeaders[index]?.length === 10 && rawHeaders[index]?.toLowerCase() === 'connection') {
      values.push(rawHeaders[index + 1] ?? '');
    }
  }
  const tokens = tokensOf(values);
  if (tokens === noNames) return noNames;
  const names = new Set(Array.from(tokens, folded));
  names.delete('content-length');
  return names;
}

/**
 * Returns the header names that Connection lists. Omits `content-length`, because otherwise a client could strip the
 * framing of its body.
 */
function tokensOf(values: readonly string[]): ReadonlySet<string> {
  if (values.every((value) => persistenceOnly.has(value))) return noNames;
  const tokens = values.flatMap((value) =>
    value
      .toLowerCase()
      .split(',')
      .map((token) => token.trim()),
  );
  return new Set(tokens.filter((token) => token !== '' && token !== 'content-length'));
}
