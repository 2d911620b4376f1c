import { memoize } from '../../policy/memoize.js';
import type { HeaderList } from './request-data.js';

/** Header names to memoize. */
const mostNames = 1_000;

/** Hop-by-hop headers (RFC 9110 7.6.1), and `expect`, to which the gateway itself responds. */
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
 * Names of client headers that are never forwarded upstream, spelled as `folded` returns them; a final `*` matches any
 * suffix. Services trust these headers because the proxy in front sets them, and this gateway is that proxy.
 */
export const reservedNames: readonly string[] = [
  // The caller's identity: only the gateway's verified values may reach a service.
  ...['x-api-key', 'x-merchant-*', 'x-gateway-*', 'x-request-id'],
  // Services would read their user from these, but the gateway authenticates only merchants.
  ...['remote-*', 'x-remote-*', 'x-auth-request-*', 'x-authenticated-*', 'x-webauth-*'],
  // The client's address, protocol and host: only the gateway's own X-Forwarded-* may state them.
  ...['forwarded', 'forwarded-for', 'x-forwarded', 'x-forwarded-*', 'http-x-forwarded-*', 'x-real-ip'],
  ...['x-scheme', 'x-url-scheme', 'front-end-https', 'x-host', 'x-http-host-override'],
  // The client address under the names of CDNs, clouds, load balancers and application servers.
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
  // A service would execute a different method than the permitted one.
  ...['x-http-method', 'x-http-method-override', 'x-method-override'],
  // A service would serve a different path (IIS, Envoy, Symfony CVE-2018-14773) or fetch one (Rack CVE-2025-61780).
  ...['x-original-*', 'x-envoy-original-*', 'x-rewrite-url', 'x-override-url', 'x-accel-mapping', 'x-sendfile-type'],
  // CGI turns `Proxy` into the variable HTTP_PROXY, which many HTTP clients use as their proxy (httpoxy).
  'proxy',
  // The gateway takes part in the trace and sends its own values (W3C Trace Context).
  ...['traceparent', 'tracestate'],
  // Each upstream has its own Host, and each connection its own framing.
  ...['host', 'content-length', ...hopByHopNames],
];
const exactNames: ReadonlySet<string> = new Set(reservedNames.filter((name) => !name.endsWith('*')));
const prefixes = reservedNames.filter((name) => name.endsWith('*')).map((name) => name.slice(0, -1));

/** The usual values of Connection, which name no header. */
const persistenceOnly: ReadonlySet<string> = new Set(['keep-alive', 'close', 'Keep-Alive', 'Close']);
const noNames: ReadonlySet<string> = new Set();

/**
 * Filters a client's headers for the upstream. Drops headers that are reserved, hop-by-hop or named by Connection, in
 * every spelling that a service may treat as equal.
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
 * Normalizes a header name like CGI, PHP, WSGI and others, which map `X.Merchant!Id` and `x-merchant-id` to one
 * variable. They use `_` for each other character; this uses `-`.
 */
const folded = memoize(mostNames, (name) => name.toLowerCase().replace(/[^a-z0-9]/g, '-'));

/** Whether a client header may be forwarded, judged by its name without regard to Connection. */
const isForwardable = memoize(mostNames, (name) => {
  if (name.toLowerCase() === 'content-length') return true; // the framing itself; other spellings of it are dropped
  const spelling = folded(name);
  return !exactNames.has(spelling) && !prefixes.some((prefix) => spelling.startsWith(prefix));
});

/**
 * Filters an upstream's headers for the client: drops hop-by-hop headers and `x-request-id`. Names are in lower case.
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

/** Folds the names too; otherwise a hop-by-hop header in another spelling would reach a service. */
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

/** The header names that Connection lists, without `content-length`: a client must not strip the body's framing. */
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
