import { memoize } from '../../policy/memoize.js';
import type { HeaderList } from './request-data.js';

/** Of names of headers. */
const mostNames = 1_000;

/** Headers of one hop (RFC 9110 7.6.1), and `expect`, which the gateway has answered itself. */
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
 * Names of which no client's header reaches an upstream, as `folded` spells them; `*` stands for any end. Services believe
 * these because a proxy in front of them sets them, and this gateway is that proxy.
 */
export const reservedNames: readonly string[] = [
  // Who calls is what the gateway has verified.
  ...['x-api-key', 'x-merchant-*', 'x-gateway-*', 'x-request-id'],
  // Services would take their user from these, and the gateway authenticates merchants only.
  ...['remote-*', 'x-remote-*', 'x-auth-request-*', 'x-authenticated-*', 'x-webauth-*'],
  // From where, over which protocol and to which host a request came: the gateway says so in X-Forwarded-* alone.
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
  // A service would carry out another method than the one that was permitted.
  ...['x-http-method', 'x-http-method-override', 'x-method-override'],
  // It would serve another path (IIS, Envoy, Symfony CVE-2018-14773), or have one fetched (Rack CVE-2025-61780).
  ...['x-original-*', 'x-envoy-original-*', 'x-rewrite-url', 'x-override-url', 'x-accel-mapping', 'x-sendfile-type'],
  // CGI makes the variable HTTP_PROXY of it, through which many libraries send their requests (httpoxy).
  'proxy',
  // The gateway is a part of the trace, and passes on what it makes of these (W3C Trace Context).
  ...['traceparent', 'tracestate'],
  // Each upstream has its own Host, and each connection its own framing.
  ...['host', 'content-length', ...hopByHopNames],
];
const exactNames: ReadonlySet<string> = new Set(reservedNames.filter((name) => !name.endsWith('*')));
const prefixes = reservedNames.filter((name) => name.endsWith('*')).map((name) => name.slice(0, -1));

/** What Connection says on nearly all requests and answers, and names no header with. */
const saysOnlyWhetherToKeep: ReadonlySet<string> = new Set(['keep-alive', 'close', 'Keep-Alive', 'Close']);
const nothing: ReadonlySet<string> = new Set();

/**
 * What of a client's headers goes upstream, as a flat list of names and values: none that is reserved, of this hop or named
 * by Connection, under any name that a service may read as such a one.
 * @param forwarded a list behind which they are put
 */
export function forwardableHeaders(rawHeaders: readonly string[], forwarded: string[] = []): string[] {
  const named = namedByClient(rawHeaders);
  for (let index = 0; index + 1 < rawHeaders.length; index += 2) {
    const name = rawHeaders[index] ?? '';
    if (!isForwardable(name) || (named !== nothing && named.has(folded(name)))) continue;
    forwarded.push(name, rawHeaders[index + 1] ?? '');
  }
  return forwarded;
}

/**
 * A header's name as CGI, PHP, WSGI and others read it: to them `X.Merchant!Id` and `x-merchant-id` are one variable. They
 * have `_` where this has `-`.
 */
const folded = memoize(mostNames, (name) => name.toLowerCase().replace(/[^a-z0-9]/g, '-'));

/** Whether a client's header may go upstream, by its name as it is written and whatever Connection says. */
const isForwardable = memoize(mostNames, (name) => {
  if (name.toLowerCase() === 'content-length') return true; // the framing itself; its look-alikes are not
  const spelling = folded(name);
  return !exactNames.has(spelling) && !prefixes.some((prefix) => spelling.startsWith(prefix));
});

/** What of an upstream's headers, with names in lower case, goes to the client: all but the hop-by-hop ones. */
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
  return nothing;
}

/** Folded as well, or a header of this hop would reach a service that reads it under another spelling. */
function namedByClient(rawHeaders: readonly string[]): ReadonlySet<string> {
  const values: string[] = [];
  for (let index = 0; index + 1 < rawHeaders.length; index += 2) {
    if (rawHeaders[index]?.length === 10 && rawHeaders[index]?.toLowerCase() === 'connection') {
      values.push(rawHeaders[index + 1] ?? '');
    }
  }
  const tokens = tokensOf(values);
  if (tokens === nothing) return nothing;
  const names = new Set(Array.from(tokens, folded));
  names.delete('content-length');
  return names;
}

/** The names that Connection lists. A client may not strip the body's own framing with it. */
function tokensOf(values: readonly string[]): ReadonlySet<string> {
  if (values.every((value) => saysOnlyWhetherToKeep.has(value))) return nothing;
  const tokens = values.flatMap((value) =>
    value
      .toLowerCase()
      .split(',')
      .map((token) => token.trim()),
  );
  return new Set(tokens.filter((token) => token !== '' && token !== 'content-length'));
}
