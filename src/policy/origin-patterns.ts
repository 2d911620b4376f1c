import { memoize } from './memoize.js';
import { longestAuthority, type OriginClaim, type OriginPatterns, parseUrl, upToPath } from './origins.js';

/** Error for an invalid entry of an origin allowlist. */
export class InvalidOriginPattern extends Error {
  constructor(readonly entry: string) {
    super(
      `"${entry.slice(0, 64)}" is not an origin: expected a host such as shop.example or *.shop.example, ` +
        'optionally with http:// or https:// before it and a port after it',
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
const numericHost = /^(?:\[.*\]|[\d.]+)$/;

/**
 * Compiles allowlist entries. An entry is a host, or `*.` and a host, with an optional scheme and port. `*.` matches
 * all subdomains of the host. Without a scheme, both http and https match. Without a port, the default port of the
 * scheme matches.
 * @throws InvalidOriginPattern for the first invalid entry
 */
export function compileOriginPatterns(entries: readonly string[]): OriginPatterns {
  return new CompiledPatterns(entries.flatMap(patternKeys));
}

/**
 * Lists up to this length, in characters, are stored as one string. A Set takes 175 bytes more per list, and each of
 * 100,000 merchants could have a list.
 */
const longestText = 1_024;

/** This is a class because a closure per allowlist would use as much memory as a short allowlist itself. */
class CompiledPatterns implements OriginPatterns {
  /** The allowed patterns: a Set, or a string with one pattern per line (no host contains a line feed). */
  readonly #allowed: ReadonlySet<string> | string;

  constructor(keys: readonly string[]) {
    // Here, a key is the stored form of a pattern (see `originKey`). It is looked up as `\n${key}\n`. An empty list is
    // stored as one line feed, so that even the look-up of an empty key (`\n\n`) finds nothing.
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

/** A parsed claim of an origin (value of Origin, Referer or Host). `origin` is null if the value is invalid. */
interface ReadClaim {
  readonly origin: { readonly scheme: Scheme; readonly host: string; readonly port: string } | null;
}

/**
 * Caches parsed claims: requests repeat the same origins, and parsing one costs more than all other checks together.
 */
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

/**
 * Returns the stored form of a pattern with scheme and port. A pattern without scheme and port, the most common kind,
 * is stored as its host only.
 */
function originKey(scheme: Scheme, host: string, port: string): string {
  return `${scheme}://${host}:${port}`;
}

/** Copies an ASCII string, to save memory: V8 keeps the whole source of a slice or a concatenation in memory. */
function copyOf(text: string): string {
  return Buffer.from(text, 'latin1').toString('latin1');
}

/**
 * Returns the claimed origin as a URL; null if the value is invalid for its header. `Origin: null` is invalid, so it
 * never matches.
 */
function claimedUrl(claim: OriginClaim): URL | null {
  switch (claim.header) {
    case 'origin':
      return originForm.test(claim.value) ? parseClaim(claim.value) : null;
    case 'referer': {
      const url = refererForm.test(claim.value) ? parseClaim(claim.value) : null;
      return url !== null && url.username === '' && url.password === '' ? url : null;
    }
    // A Host header has no scheme. The scheme is https, because requests without TLS were denied before.
    case 'host':
      return hostForm.test(claim.value) ? parseClaim(`https://${claim.value}`) : null;
  }
}

/** Parses a claimed origin. Returns null if it is invalid, or too long to be a host. */
function parseClaim(text: string): URL | null {
  const authority = upToPath(text);
  return authority.length > longestAuthority ? null : parseUrl(authority);
}

function withoutTrailingDot(hostname: string): string {
  return hostname.endsWith('.') ? hostname.slice(0, -1) : hostname;
}
