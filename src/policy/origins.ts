/** Where the caller says that the request comes from: the first present of Origin, Referer and Host, alone. */
export interface OriginClaim {
  readonly header: 'origin' | 'referer' | 'host';
  readonly value: string;
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

/**
 * Compiles allowlist entries: a host, or `*.` and a host for its subdomains, either with a scheme and/or a port.
 * Without a scheme both http and https are meant; without a port, the default port of the scheme.
 * @throws InvalidOriginPattern for the first entry that is of another form
 */
export function compileOriginPatterns(entries: readonly string[]): OriginPatterns {
  const allowed = new Set<string>();
  for (const entry of entries) for (const key of patternKeys(entry)) allowed.add(key);
  let latest: ReadClaim | null = null;
  return {
    matches(claim) {
      // A merchant's pages say the same again and again, and to read it costs more than all other checks.
      let read = latest;
      if (read?.value !== claim.value || read.header !== claim.header) read = readClaim(claim);
      if (read.value.length <= longestKept) latest = read;
      const { origin } = read;
      if (origin === null) return false;
      const { scheme, host, port } = origin;
      if (allowed.has(originKey(scheme, host, port))) return true;
      for (let dot = host.indexOf('.'); dot !== -1; dot = host.indexOf('.', dot + 1)) {
        if (dot > 0 && allowed.has(originKey(scheme, `*${host.slice(dot)}`, port))) return true;
      }
      return false;
    },
  };
}

/** The longest claim, in characters, that is kept: each merchant has one. */
const longestKept = 256;

/** A claim and what it was read as; null where it is not of the form that its header has. */
interface ReadClaim extends OriginClaim {
  readonly origin: { readonly scheme: Scheme; readonly host: string; readonly port: string } | null;
}

function readClaim(claim: OriginClaim): ReadClaim {
  const { header, value } = claim;
  const url = claimedUrl(claim);
  if (url === null) return { header, value, origin: null };
  const scheme = url.protocol === 'https:' ? 'https' : 'http';
  return {
    ...{ header, value },
    origin: { scheme, host: withoutTrailingDot(url.hostname), port: url.port || defaultPorts[scheme] },
  };
}

/**
 * Says whether an Origin, Referer or Host names an onion service. A value that cannot be read but speaks of `.onion`
 * counts as one: in a deny rule doubt denies.
 */
export function namesOnionService(value: string): boolean {
  if (plainText.test(value) && !/onion/i.test(value)) return false;
  const url = parseUrl(value.includes('://') ? value : `https://${value}`);
  return url === null ? /\.onion/i.test(value) : /\.onion\.*$/i.test(url.hostname);
}

function patternKeys(entry: string): string[] {
  const parts = patternForm.exec(entry)?.groups;
  const url = parts === undefined ? null : parseUrl(`https://${parts.host ?? ''}`);
  const port = parts?.port === undefined ? undefined : Number(parts.port);
  if (parts === undefined || url === null || port === 0 || (port ?? 0) > 65535) throw new InvalidOriginPattern(entry);

  const host = withoutTrailingDot(url.hostname);
  if (host === '' || emptyLabel.test(host) || (parts.wildcard !== undefined && numericHost.test(host)))
    throw new InvalidOriginPattern(entry);
  const hostPattern = parts.wildcard === undefined ? host : `*.${host}`;
  const schemes: readonly Scheme[] =
    parts.scheme === undefined ? ['http', 'https'] : [parts.scheme.toLowerCase() as Scheme];
  return schemes.map((scheme) => originKey(scheme, hostPattern, port?.toString() ?? defaultPorts[scheme]));
}

function originKey(scheme: Scheme, host: string, port: string): string {
  return `${scheme}://${host}:${port}`;
}

/** The claim as a URL, or null where it is not of the form that its header has: `Origin: null` matches nothing. */
function claimedUrl(claim: OriginClaim): URL | null {
  switch (claim.header) {
    case 'origin':
      return originForm.test(claim.value) ? parseUrl(claim.value) : null;
    case 'referer': {
      const url = refererForm.test(claim.value) ? parseUrl(claim.value) : null;
      return url !== null && url.username === '' && url.password === '' ? url : null;
    }
    case 'host': // whoever gets as far as this check came over TLS
      return hostForm.test(claim.value) ? parseUrl(`https://${claim.value}`) : null;
  }
}

/** The URL parser brings a host into lower case and punycode and drops the scheme's default port. */
function parseUrl(text: string): URL | null {
  return URL.canParse(text) ? new URL(text) : null;
}

function withoutTrailingDot(hostname: string): string {
  return hostname.endsWith('.') ? hostname.slice(0, -1) : hostname;
}
