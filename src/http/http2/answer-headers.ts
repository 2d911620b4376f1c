import type { HeaderList } from '../header-list.js';

/** Lists (RFC 9110 8.4 and 8.5), of which Node takes one line alone. */
const lists: ReadonlySet<string> = new Set(['content-encoding', 'content-language']);

/** What Node refuses to send twice, fields of requests among them. */
const single: ReadonlySet<string> = new Set([
  ...['access-control-allow-credentials', 'access-control-max-age', 'access-control-request-method', 'age'],
  ...['authorization', 'content-location', 'content-md5', 'content-range', 'content-type', 'date', 'dnt', 'etag'],
  ...['expires', 'from', 'host', 'if-match', 'if-modified-since', 'if-none-match', 'if-range', 'if-unmodified-since'],
  ...['last-modified', 'location', 'max-forwards', 'proxy-authorization', 'range', 'referer', 'retry-after', 'tk'],
  ...['upgrade-insecure-requests', 'user-agent', 'x-content-type-options'],
]);

/**
 * The headers of an answer as Node takes them for HTTP/2. What a service and a proxy in front of it have both said, such as
 * Date, is said once; where they contradict each other there are two values still, which Node refuses.
 */
export function http2Headers(list: Readonly<HeaderList>): Record<string, string | string[]> {
  const headers: Record<string, string | string[]> = {};
  for (let index = 0; index + 1 < list.length; index += 2) {
    const name = String(list[index]);
    const value = list[index + 1] ?? '';
    headers[name] = typeof value === 'string' ? value : inOneLine(name, value);
  }
  return headers;
}

function inOneLine(name: string, values: string[]): string | string[] {
  if (lists.has(name)) return values.join(', ');
  const [first = ''] = values;
  return single.has(name) && values.every((value) => value === first) ? first : values;
}
