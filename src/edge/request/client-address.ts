import { type IpAddress, parseIpAddress } from '../../policy/ip-address.js';
import { memoize } from '../../policy/memoize.js';
import { compileIpRanges, type IpRanges } from '../../policy/ip-ranges.js';

/**
 * Parses the remote address, which is the socket's peer. (The client address comes from trusted proxies.) Drops the
 * zone that the kernel adds to link-local peers (`fe80::1%eth0`).
 */
export function parseRemoteAddress(remoteAddress: string | undefined): IpAddress | null {
  const [address = ''] = (remoteAddress ?? '').split('%', 1);
  return parseIpAddress(address);
}

/**
 * RFC 9110 5.6.3 allows spaces and tabs around a list entry. `trim` would also accept other white space, such as a
 * no-break space.
 */
const listEntry = /^[ \t]*(\S+)[ \t]*$/;

/** Parses an X-Forwarded-For entry; null if it is not an IP address. Memoized, because the same clients recur. */
const readEntry = memoize(10_000, (entry) => parseIpAddress(listEntry.exec(entry)?.[1] ?? ''));

/** An address on the path to the client address. */
export interface Hop {
  readonly address: IpAddress;
  /** Whether its X-Forwarded-For entry for the previous hop is trusted. */
  readonly trusted: boolean;
}

/**
 * Resolves the client address. This is the peer, unless the peer is a trusted proxy. For a trusted proxy, the function
 * reads X-Forwarded-For from right to left and takes the first entry that is not a trusted proxy. Entries further left
 * come from untrusted senders. If every entry is a trusted proxy, the left-most entry is the client.
 * @param forwardedFor all X-Forwarded-For values of the request, in order
 * @param onHop called for each hop, starting with the peer
 * @returns null if a visited entry is not an IP address: the client is then unknown
 */
export function resolveClientAddress(
  peer: IpAddress,
  forwardedFor: readonly string[],
  trustedProxies: IpRanges,
  onHop?: (hop: Hop) => void,
): IpAddress | null {
  const peerIsTrusted = trustedProxies.contains(peer);
  onHop?.({ address: peer, trusted: peerIsTrusted });
  if (!peerIsTrusted || forwardedFor.length === 0) return peer;
  let client = peer;
  const list = forwardedFor.length === 1 ? (forwardedFor[0] ?? '') : forwardedFor.join(',');
  for (let end = list.length; end >= 0;) {
    const comma = end === 0 ? -1 : list.lastIndexOf(',', end - 1);
    const address = readEntry(list.slice(comma + 1, end));
    if (address === null) return null;
    client = address;
    const trusted = trustedProxies.contains(address);
    onHop?.({ address, trusted });
    if (!trusted) break;
    end = comma;
  }
  return client;
}

/**
 * Whether the client's own hop used TLS. X-Forwarded-Proto of a trusted proxy overrides the peer's TLS state, and only
 * the exact value `https` counts as secure. A proxy that forwards plain HTTP over its own TLS hop has not protected the
 * key.
 */
export function isSecure(
  peer: IpAddress,
  peerOverTls: boolean,
  forwardedProto: readonly string[],
  trustedProxies: IpRanges,
): boolean {
  if (forwardedProto.length === 0 || !trustedProxies.contains(peer)) return peerOverTls;
  return forwardedProto.length === 1 && forwardedProto[0] === 'https';
}

const ipv6End = '::/64';

/**
 * The unit by which callers are counted: an IPv4 address or an IPv6 /64. One IPv6 subscriber holds a whole /64, so its
 * 2^64 addresses would otherwise count as separate callers.
 */
export function sourceOf(address: IpAddress): string {
  return address.family === 4 ? address.text : `${(address.value >> 64n).toString(16)}${ipv6End}`;
}

/** Formats a source for display: `192.0.2.7` or `2001:db8:0:7::/64`. */
export function sourceText(source: string): string {
  if (!source.endsWith(ipv6End)) return source;
  const network = source.slice(0, -ipv6End.length).padStart(16, '0');
  const groups = network.match(/[0-9a-f]{4}/g) ?? [];
  return groups.map((group) => group.replace(/^0{1,3}/, '')).join(':') + ipv6End;
}

const noProxies = compileIpRanges([]);

/** The proxies whose forwarding headers are trusted on a connection. @param mayForward `ConnectionFacts.mayForward` */
export function effectiveTrustedProxies(mayForward: boolean, trustedProxies: IpRanges): IpRanges {
  return mayForward ? trustedProxies : noProxies;
}
