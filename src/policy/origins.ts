/** The origin that a client claims: the first of the Origin, Referer and Host headers that is present. */
export interface OriginClaim {
  readonly header: 'origin' | 'referer' | 'host';
  readonly value: string;
}

const headerNames = { origin: 'Origin', referer: 'Referer', host: 'Host' } as const;
const schemeAndHost = /^(?:[a-z][a-z0-9+.-]*:\/\/)?(?:[^/?#]*@)?([^/?#]*)/i;

/** Formats a claimed origin for a log as header name and host, without path, query or password. */
export function claimText(claim: OriginClaim): string {
  const host = claimedHost(claim);
  return `${headerNames[claim.header]} ${host === '' ? '(without a host)' : host}`;
}

/** The host in an Origin, Referer or Host header, as the client wrote it; empty without a host. */
export function claimedHost({ value }: OriginClaim): string {
  return schemeAndHost.exec(value)?.[1] ?? '';
}

/** The compiled origin allowlist of a merchant. A check needs at most two look-ups for each label of the host name. */
export interface OriginPatterns {
  matches(claim: OriginClaim): boolean;
}

/**
 * Matches printable ASCII without `%`. In such a text, the URL parser decodes nothing, and changes only the case of
 * letters.
 */
const plainText = /^[\x21-\x24\x26-\x7e]*$/;
/**
 * Matches a URL up to the end of its host. Only this part is parsed: the rest cannot change the host, and the path of a
 * Referer could be as long as a whole request head.
 */
const throughAuthority = /^[^:]*:[/\\\t\r\n]*[^/?#]*/;
/**
 * Maximum length of scheme and authority to parse, in characters: parsing can take 0.33 µs per character. The longest
 * host name has 253 characters (RFC 1035, section 2.3.4), and a scheme and a port have room beside it.
 */
export const longestAuthority = 320;
/** Maximum number of values of one header to parse. A request normally has one, and a proxy can add another. */
const mostRead = 2;

/**
 * Whether a value of Origin, Referer or Host names a Tor onion service. The client is not authenticated yet, so
 * doubtful values also give true: values that contain `.onion` but cannot be parsed, and values that are too long or
 * too many to parse.
 */
export function namesOnionService(values: readonly string[]): boolean {
  let read = 0;
  for (const value of values) {
    if (isHarmless(value)) continue;
    const authority = upToPath(value.includes('://') ? value : `https://${value}`);
    if (isHarmless(authority) && !/\.onion/i.test(value)) continue;
    read += 1;
    if (read > mostRead || authority.length > longestAuthority) return true;
    const url = parseUrl(authority);
    if (url === null ? /\.onion/i.test(value) : /\.onion\.*$/i.test(url.hostname)) return true;
  }
  return false;
}

/** Whether a text cannot name an onion service, however a parser reads it. */
function isHarmless(text: string): boolean {
  return plainText.test(text) && !/onion/i.test(text);
}

/**
 * Cuts a URL after its authority, and puts a `/` in place of the part that was cut. Without the `/`, the URL parser
 * would strip white space after the host, and so accept an invalid host.
 */
export function upToPath(url: string): string {
  const authority = throughAuthority.exec(url)?.[0] ?? url;
  return authority.length === url.length ? url : `${authority}/`;
}

/**
 * Parses a URL; returns null if it is invalid. The parser converts the host to lower-case punycode and removes the
 * default port. Do not call `URL.canParse` first: once V8 has optimized it, Node 20 rejects all Latin-1 text beyond
 * ASCII, and an onion host with a soft hyphen would pass the Tor check.
 */
export function parseUrl(text: string): URL | null {
  try {
    return new URL(text);
  } catch {
    return null;
  }
}
