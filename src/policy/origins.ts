import { memoize } from './memoize.js';

/** Where the caller says that the request comes from: the first present of Origin, Referer and Host, alone. */
export interface OriginClaim {
  readonly header: 'origin' | 'referer' | 'host';
  readonly value: string;
}

const headerNames = { origin: 'Origin', referer: 'Referer', host: 'Host' } as const;
const schemeAndHost = /^(?:[a-z][a-z0-9+.-]*:\/\/)?(?:[^/?#]*@)?([^/?#]*)/i;

/** A claim in words: its header, and the host in it. Neither a path nor a query nor a password belongs into a log. */
export function claimText({ header, value }: OriginClaim): string {
  const host = schemeAndHost.exec(value)?.[1] ?? '';
  return `${headerNames[header]} ${host === '' ? '(without a host)' : host}`;
}

/** A merchant's origin allowlist, compiled once; a look-up costs one set probe per label of the host. */
export interface OriginPatterns {
  matches(claim: OriginClaim): boolean;
}

/** An origin allowlist entry of no known form. */
export class InvalidOriginPattern extends Error {
  constructor(readonly entry: string) {
    super(
      `"${entry.slice(0, 64)}" is not an origin: expected a host such as shop.example or *.shop.example, ` +
        'with http:// or https:// before it or a port after it if wanted',
    );
    this.name = 'InvalidOriginPattern';
  }
}

const defaultPorts = { http: '80', https: '443' } as const;
type Scheme = keyof typeof defaultPorts;

const patternForm =
  /^(?:(?<scheme>https?):\/\/)?(?<wildcard>\*\.)?(?<host>[^\s\p{Cc}/?#@\\%*:[\],]+|\[[0-9a-f:.]+\])(?::(?<port>\d{1,5}))?$/iu;
const originForm = /^https?:\/\/[^\s\p{Cc}/?#@\\%]+$/iu;
const refererForm = /^https?:\/\//i;
const hostForm = /^[^\s\p{Cc}/?#@\\%]+$/u;
const emptyLabel = /^\.|\.\./;
/** Printable ASCII without `%`: what the URL parser changes in no way but its case. */
const plainText = /^[\x21-\x24\x26-\x7e]*$/;
const numericHost = /^(?:\[.*\]|[\d.]+)$/;
/** A URL as far as its host goes: nothing behind it changes the host, and a Referer's path may be as long as a head. */
const throughAuthority = /^[^:]*:[/\\\t\r\n]*[^/?#]*/;
/** In characters, with the scheme. A name has 253 at most (RFC 1035 2.3.4); a third of a microsecond each may take to read. */
const longestAuthority = 320;
/** Of one header's values: it has one, or is repeated by a proxy. */
const mostRead = 2;

/**
 * Compiles allowlist entries: a host, or `*.` and a host for its subdomains, either with a scheme and/or a port.
 * Without a scheme both http and https are meant; without a port, the default port of the scheme.
 * @throws InvalidOriginPattern for the first entry that is of another form
 */
export function compileOriginPatterns(entries: readonly string[]): OriginPatterns {
  return new CompiledPatterns(entries.flatMap(patternKeys));
}

/** As long as this a list is kept as one text: a set takes 175 bytes more for each of a hundred thousand merchants. */
const longestText = 1_024;

/** No closure: that would be as large as a short list. */
class CompiledPatterns implements OriginPatterns {
  /** A set, or a text in which each pattern is a line; no host has a line end. */
  readonly #allowed: ReadonlySet<string> | string;

  constructor(keys: readonly string[]) {
    const text = `${keys.map((key) => `\n${key}`).join('')}\n`; // of no keys one line end: no empty name is between two
    this.#allowed = text.length > longestText ? new Set(keys.map(ownText)) : ownText(text);
  }

  matches(claim: OriginClaim): boolean {
    const { origin } = knownClaim[claim.header](claim.value);
    if (origin === null) return false;
    const { scheme, host, port } = origin;
    if (this.#allows(scheme, host, port)) return true;
    for (let dot = host.indexOf('.'); dot !== -1; dot = host.indexOf('.', dot + 1)) {
      if (dot > 0 && this.#allows(scheme, `*${host.slice(dot)}`, port)) return true;
    }
    return false;
  }

  #allows(scheme: Scheme, host: string, port: string): boolean {
    return (port === defaultPorts[scheme] && this.#has(host)) || this.#has(originKey(scheme, host, port));
  }

  #has(pattern: string): boolean {
    const allowed = this.#allowed;
    return typeof allowed === 'string' ? allowed.includes(`\n${pattern}\n`) : allowed.has(pattern);
  }
}

/** A claim as it was read; null where it is not of the form that its header has. */
interface ReadClaim {
  readonly origin: { readonly scheme: Scheme; readonly host: string; readonly port: string } | null;
}

/** Claims that were read before: pages say the same again and again, and to read it costs more than all other checks. */
const knownClaim: Readonly<Record<OriginClaim['header'], (value: string) => ReadClaim>> = {
  origin: memoize(2_000, (value) => readClaim({ header: 'origin', value })),
  referer: memoize(2_000, (value) => readClaim({ header: 'referer', value })),
  host: memoize(2_000, (value) => readClaim({ header: 'host', value })),
};

function readClaim(claim: OriginClaim): ReadClaim {
  const url = claimedUrl(claim);
  if (url === null) return { origin: null };
  const scheme = url.protocol === 'https:' ? 'https' : 'http';
  return { origin: { scheme, host: withoutTrailingDot(url.hostname), port: url.port || defaultPorts[scheme] } };
}

/**
 * Says whether one of the values of an Origin, Referer or Host names an onion service. A value that cannot be read but
 * speaks of `.onion` counts as one, and so does one that would take long to read: nobody has shown a key yet, and in a deny
 * rule doubt denies.
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

/** No reading makes an onion service of it. */
function isHarmless(text: string): boolean {
  return plainText.test(text) && !/onion/i.test(text);
}

/** With something behind the host where there was: the URL parser takes away what is blank at the end. */
function upToPath(url: string): string {
  const authority = throughAuthority.exec(url)?.[0] ?? url;
  return authority.length === url.length ? url : `${authority}/`;
}

function patternKeys(entry: string): string[] {
  const parts = patternForm.exec(entry)?.groups;
  const url = parts === undefined ? null : parseUrl(`https://${parts.host ?? ''}`);
  const port = parts?.port === undefined ? undefined : Number(parts.port);
  if (parts === undefined || url === null || port === 0 || (port ?? 0) > 65535) throw new InvalidOriginPattern(entry);

  const host = withoutTrailingDot(url.hostname);
  if (host === '' || emptyLabel.test(host) || (parts.wildcard !== undefined && numericHost.test(host)))
    throw new InvalidOriginPattern(entry);
  const pattern = parts.wildcard === undefined ? host : `*.${host}`;
  if (parts.scheme === undefined && port === undefined) return [pattern];
  const schemes: readonly Scheme[] =
    parts.scheme === undefined ? ['http', 'https'] : [parts.scheme.toLowerCase() as Scheme];
  return schemes.map((scheme) => originKey(scheme, pattern, port?.toString() ?? defaultPorts[scheme]));
}

/** A pattern of one scheme and port. That of both schemes with their default ports, as most are, is its host alone. */
function originKey(scheme: Scheme, host: string, port: string): string {
  return `${scheme}://${host}:${port}`;
}

/** An ASCII text by itself. One that was cut out of another, or put together, keeps what it was made of in memory. */
function ownText(text: string): string {
  return Buffer.from(text, 'latin1').toString('latin1');
}

/** The claim as a URL, or null where it is not of the form that its header has: `Origin: null` matches nothing. */
function claimedUrl(claim: OriginClaim): URL | null {
  switch (claim.header) {
    case 'origin':
      return originForm.test(claim.value) ? parseClaim(claim.value) : null;
    case 'referer': {
      const url = refererForm.test(claim.value) ? parseClaim(claim.value) : null;
      return url !== null && url.username === '' && url.password === '' ? url : null;
    }
    case 'host': // whoever gets as far as this check came over TLS
      return hostForm.test(claim.value) ? parseClaim(`https://${claim.value}`) : null;
  }
}

/** What is too long for a host matches nothing. */
function parseClaim(text: string): URL | null {
  const authority = upToPath(text);
  return authority.length > longestAuthority ? null : parseUrl(authority);
}

/**
 * The URL parser brings a host into lower case and punycode and drops the scheme's default port. It is not asked by
 * `URL.canParse` first: once V8 has optimised that, Node 20 says that no text of Latin-1 beyond ASCII can be parsed, and an
 * onion service whose name has a soft hyphen in it would be none.
 */
function parseUrl(text: string): URL | null {
  try {
    return new URL(text);
  } catch {
    return null;
  }
}

function withoutTrailingDot(hostname: string): string {
  return hostname.endsWith('.') ? hostname.slice(0, -1) : hostname;
}
