/**
 * Turns the fields of an HTTP/2 request into those of HTTP/1.1, so that everything behind judges one kind of request
 * (RFC 9113 8.3.1, 8.2.3): no pseudo-headers, `:authority` as Host, and the crumbs of Cookie in one line. Where a Host
 * comes as well and names another host, both stay: a request with two hosts is refused.
 * @param fields names and values, flat, as Node received them
 */
export function http1FieldsOf(fields: readonly string[]): string[] {
  const headers: string[] = [];
  const cookies: string[] = [];
  let authority: string | null = null;
  for (let index = 0; index + 1 < fields.length; index += 2) {
    const [name = '', value = ''] = [fields[index], fields[index + 1]];
    if (name === ':authority') {
      authority = value;
      headers.push('host', value);
    } else if (name === 'cookie') {
      cookies.push(value);
    } else if (!name.startsWith(':') && !(name === 'host' && authority !== null && isSameHost(value, authority))) {
      headers.push(name, value);
    }
  }
  if (cookies.length > 0) headers.push('cookie', cookies.join('; '));
  return headers;
}

function isSameHost(host: string, authority: string): boolean {
  return host.toLowerCase() === authority.toLowerCase();
}
