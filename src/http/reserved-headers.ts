import type { HeaderList } from './header-list.js';
import { remembering } from './remembering.js';

/** Names that only the gateway may give to an upstream; with `_` read as `-`, because upstreams behind CGI do so too. */
const reservedNames: ReadonlySet<string> = new Set(['x-api-key', 'forwarded', 'x-real-ip', 'x-request-id']);
const reservedPrefixes = ['x-merchant-', 'x-gateway-', 'x-forwarded-'] as const;

/** W3C Trace Context: the gateway is a part of the trace, and passes on what it makes of these. */
const traceNames: ReadonlySet<string> = new Set(['traceparent', 'tracestate']);

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

/** What Connection says on nearly all requests and answers, and names no header with. */
const saysOnlyWhetherToKeep: ReadonlySet<string> = new Set(['keep-alive', 'close', 'Keep-Alive', 'Close']);
const nothing: ReadonlySet<string> = new Set();

/** Says whether a client's header must not reach an upstream, because the gateway alone speaks of it. */
export function isReservedHeader(name: string): boolean {
  const normalised = name.toLowerCase().replaceAll('_', '-');
  return reservedNames.has(normalised) || reservedPrefixes.some((prefix) => normalised.startsWith(prefix));
}

/**
 * What of a client's headers goes upstream, as a flat list of names and values: no hop-by-hop headers, none that
 * Connection names, none that is reserved, no trace context, and no Host, which is the upstream's own.
 * @param forwarded a list behind which they are put
 */
export function forwardableHeaders(rawHeaders: readonly string[], forwarded: string[] = []): string[] {
  const named = connectionTokens(rawHeaders);
  for (let index = 0; index + 1 < rawHeaders.length; index += 2) {
    const name = rawHeaders[index] ?? '';
    if (!isForwardable(name) || (named !== nothing && named.has(name.toLowerCase()))) continue;
    forwarded.push(name, rawHeaders[index + 1] ?? '');
  }
  return forwarded;
}

/** Whether a client's header may go upstream, by its name as it is written and whatever Connection says. */
const isForwardable = remembering((name) => {
  const lowerCase = name.toLowerCase();
  return lowerCase !== 'host' && !hopByHopNames.has(lowerCase) && !traceNames.has(lowerCase) && !isReservedHeader(name);
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

function connectionTokens(rawHeaders: readonly string[]): ReadonlySet<string> {
  const values: string[] = [];
  for (let index = 0; index + 1 < rawHeaders.length; index += 2) {
    if (rawHeaders[index]?.length === 10 && rawHeaders[index]?.toLowerCase() === 'connection') {
      values.push(rawHeaders[index + 1] ?? '');
    }
  }
  return tokensOf(values);
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
