import { memoize } from './memoize.js';

/** The origin that the client claims: the first of Origin, Referer and Host that is present. */
export interface OriginClaim {
  readonly header: 'origin' | 'referer' | 'host';
  readonly value: string;
}

const headerNames = { origin: 'Origin', referer: 'Referer', host: 'Host' } as const;
const schemeAndHost = /^(?:[a-z][a-z0-9+.-]*:\/\/)?(?:[^/?#]*@)?([^/?#]*)/i;

/** Formats a claim for a log: its header and host, without path, query or password. */
export function claimText({ header, value }: OriginClaim): string {
  const host = schemeAndHost.exec(value)?.[1] ?? '';
  return `${headerNames[header]} ${host === '' ? '(without a host)' : host}`;
}

/** A compiled origin allowlist of a merchant. A look-up costs one set probe per label of the host. */
export interface OriginPatterns {
  matches(claim: OriginClaim): boolean;
}

/** Error for an invalid origin allowlist entry. */
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
/** Printable ASCII without `%`: the URL parser changes only its case. */
const plainText = /^[\x21-\x24\x26-\x7e]*$/;
const numericHost = /^(?:\[.*\]|[\d.]+)$/;
/**
 * The URL up to the end of its host. The rest cannot change the host, and a Referer's path may be as long as a request
 * head.
 */
const throughAuthority = /^[^:]*:[/\\\t\r\n]*[^/?#]*/;
/**
 * Longest authority to parse, in characters with the scheme. A name has at most 253 (RFC 1035 2.3.4), and parsing may
 * take a third of a microsecond per character.
 */
const longestAuthority = 320;
/** Values of one header to parse: normally one, or one more that a proxy adds. */
const mostRead = 2;

/**
 * Compiles allowlist entries: a host, or `*.` and a host for its subdomains, with optional scheme and port. Without a
 * scheme, an entry covers http and https; without a port, the default port of the scheme.
 * @throws InvalidOriginPattern for the first invalid entry
 */
export function compileOriginPatterns(entries: readonly string[]): OriginPatterns {
  return new CompiledPatterns(entries.flatMap(patternKeys));
}

/**
 * Lists up to this length are stored as one string: a Set takes 175 bytes more for each of a hundred thousand
 * merchants.
 */
const longestText = 1_024;

/** A class, because a closure would take as much memory as a short list. */
class CompiledPatterns implements OriginPatterns {
  /** A Set, or a string with one pattern per line; no host contains a line feed. */
  readonly #allowed: ReadonlySet<string> | string;

  constructor(keys: readonly string[]) {
    // without keys a single line feed, so an empty name never matches
    const text = `${keys.map((key) => `\n${key}`).join('')}\n`;
    this.#allowed = text.length > longestText ? new Set(keys.map(copyOf)) : copyOf(text);
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

/** A parsed claim; `origin` is null if the value is invalid for its header. */
interface ReadClaim {
  readonly origin: { readonly scheme: Scheme; readonly host: string; readonly port: string } | null;
}

/** Parsed claims, cached: the same pages recur, and parsing costs more than all other checks together. */
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
 * Whether a value of Origin, Referer or Host names an onion service. A value that cannot be parsed but contains
 * `.onion` counts as one. So does a value that is expensive to parse: the client has not shown a valid key yet, and a
 * deny rule denies in doubt.
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

/** Whether no parser can read an onion service from a text. */
function isHarmless(text: string): boolean {
  return plainText.test(text) && !/onion/i.test(text);
}

/**
 * Cuts a URL after its authority. Keeps a `/` if something followed, because the URL parser strips trailing white
 * space.
 */
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

/** Pattern with scheme and port. The most common pattern, both schemes with their default ports, is just the host. */
function originKey(scheme: Scheme, host: string, port: string): string {
  return `${scheme}://${host}:${port}`;
}

/** Copies an ASCII string. A slice or concatenation would keep its source strings in memory. */
function copyOf(text: string): string {
  return Buffer.from(text, 'latin1').toString('latin1');
}

/** The claim as a URL, or null if invalid for its header: `Origin: null` matches nothing. */
function claimedUrl(claim: OriginClaim): URL | null {
  switch (claim.header) {
    case 'origin':
      return originForm.test(claim.value) ? parseClaim(claim.value) : null;
    case 'referer': {
      const url = refererForm.test(claim.value) ? parseClaim(claim.value) : null;
      return url !== null && url.username === '' && url.password === '' ? url : null;
    }
    // Requests that reach this check used TLS.
    case 'host':
      return hostForm.test(claim.value) ? parseClaim(`https://${claim.value}`) : null;
  }
}

/** Parses a claim; null if its authority is too long for a host. */
function parseClaim(text: string): URL | null {
  const authority = upToPath(text);
  return authority.length > longestAuthority ? null : parseUrl(authority);
}

/**
 * Parses a URL, which converts the host to lower-case punycode and drops the scheme's default port. Does not call
 * `URL.canParse` first: once V8 has optimized it, Node 20 rejects all Latin-1 text beyond ASCII. An onion service name
 * with a soft hyphen would then pass as harmless.
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
