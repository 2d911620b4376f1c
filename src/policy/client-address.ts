import { type IpAddress, parseIpAddress } from './ip-address.js';
import { memoize } from './memoize.js';
import { compileIpRanges, type IpRanges } from './ip-ranges.js';

/**
 * Parses the address of the socket's peer; returns null if it is unknown. Drops the zone that the kernel adds to
 * link-local addresses (`fe80::1%eth0`). Behind a trusted proxy, this is not the client address.
 */
export function parseRemoteAddress(remoteAddress: string | undefined): IpAddress | null {
  const [address = ''] = (remoteAddress ?? '').split('%', 1);
  return parseIpAddress(address);
}

/**
 * Matches an X-Forwarded-For entry. RFC 9110 5.6.3 allows spaces and tabs around a list entry; `trim` would also remove
 * other white space, such as a no-break space.
 */
const listEntry = /^[ \t]*(\S+)[ \t]*$/;

/** Parses an X-Forwarded-For entry; null if it is not an IP address. Memoized, because the same clients recur. */
const readEntry = memoize(10_000, (entry) => parseIpAddress(listEntry.exec(entry)?.[1] ?? ''));

/** One address on the path from the socket's peer to the client. */
export interface Hop {
  readonly address: IpAddress;
  /** Whether this address is a configured trusted proxy. If so, the X-Forwarded-For entry from this proxy is used. */
  readonly trusted: boolean;
}

/**
 * Resolves the client address. A peer that is not a trusted proxy, or sent no X-Forwarded-For, is the client. Otherwise
 * X-Forwarded-For is read from right to left, and the first address that is not a trusted proxy is the client. Entries
 * further left come from untrusted senders, so they are ignored. If every entry is a trusted proxy, the left-most entry
 * is the client.
 * @param forwardedFor all X-Forwarded-For values of the request, in order
 * @param onHop called for each hop, starting with the peer
 * @returns null if the client is unknown, because an entry that was read is not an IP address
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
 * Whether the client itself used TLS. If the peer is a trusted proxy that sent X-Forwarded-Proto, only the exact value
 * `https` means yes. With any other value, the client could have sent its key to the proxy over plain HTTP. If the peer
 * is not trusted or sent no X-Forwarded-Proto, the TLS of the peer's own connection decides.
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
 * Returns the source of a client, the unit for counting clients: an IPv4 address or an IPv6 /64, because a subscriber
 * holds a whole /64. If an IPv6 address embeds an IPv4 address, that is the source: all NAT64 clients share a /64.
 */
export function sourceOf(address: IpAddress): string {
  const { family, text, value } = address.family === 6 ? (address.embedded ?? address) : address;
  return family === 4 ? text : `${(value >> 64n).toString(16)}${ipv6End}`;
}

/**
 * Returns the source of an address, for throttles and limits per source. Null for an unknown address, and for a trusted
 * proxy, because many clients share its address.
 */
export function throttledSource(address: IpAddress | null, trustedProxies: IpRanges): string | null {
  return address === null || trustedProxies.contains(address) ? null : sourceOf(address);
}

/** Formats a source for display: `192.0.2.7` or `2001:db8:0:7::/64`. */
export function sourceText(source: string): string {
  if (!source.endsWith(ipv6End)) return source;
  const network = source.slice(0, -ipv6End.length).padStart(16, '0');
  const groups = network.match(/[0-9a-f]{4}/g) ?? [];
  return groups.map((group) => group.replace(/^0{1,3}/, '')).join(':') + ipv6End;
}

const noProxies = compileIpRanges([]);

/**
 * Returns the proxies whose forwarding headers are trusted on a connection.
 * @param mayForward if false, no proxy is trusted on this connection; see `ConnectionFacts.mayForward`
 */
export function effectiveTrustedProxies(mayForward: boolean, trustedProxies: IpRanges): IpRanges {
  return mayForward ? trustedProxies : noProxies;
}
