import { type IpAddress, parseIpAddress } from '../../policy/ip-address.js';
import { memoize } from '../../policy/memoize.js';
import { compileIpRanges, type IpRanges } from '../../policy/ip-ranges.js';

/**
 * The remote address is the socket's peer; the client address is what trusted proxies say. Reads the remote one.
 * The kernel adds a zone to link-local peers (`fe80::1%eth0`); it is no part of the address.
 */
export function parseRemoteAddress(remoteAddress: string | undefined): IpAddress | null {
  const [address = ''] = (remoteAddress ?? '').split('%', 1);
  return parseIpAddress(address);
}

/** RFC 9110 5.6.3: blanks and tabs around an entry. `trim` would also take what makes one garbage, a no-break space say. */
const listEntry = /^[ \t]*(\S+)[ \t]*$/;

/** Reads an entry of X-Forwarded-For, of the same clients again and again; null where it is no IP address. */
const readEntry = memoize(10_000, (entry) => parseIpAddress(listEntry.exec(entry)?.[1] ?? ''));

/** A step on the way to the client address. */
export interface Hop {
  readonly address: IpAddress;
  /** Whether what it says of the one before it is believed. */
  readonly trusted: boolean;
}

/**
 * Finds the client address: the peer, unless that is a trusted proxy; then the right-most entry of X-Forwarded-For that
 * is not one, walked from the right, because everything further left was written by somebody who is not trusted.
 * Where every entry is a trusted proxy, the left-most is the client.
 * @param forwardedFor every X-Forwarded-For value of the request, in its order
 * @param onHop told of each step, from the peer on
 * @returns null where an entry on the way is not an IP address: then nobody knows who calls
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
 * Says whether the caller's own hop was TLS. A trusted proxy is believed both ways, and only if it says `https` exactly:
 * one that forwards plain HTTP over a TLS hop of its own has not protected the key.
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
 * Whom an address stands for where callers are counted: itself, or for IPv6 its /64, which is what one subscriber has;
 * counted one by one, its 2^64 addresses would be as many callers.
 */
export function sourceOf(address: IpAddress): string {
  return address.family === 4 ? address.text : `${(address.value >> 64n).toString(16)}${ipv6End}`;
}

/** A source as it is shown: `192.0.2.7`, or `2001:db8:0:7::/64`. */
export function sourceText(source: string): string {
  if (!source.endsWith(ipv6End)) return source;
  const network = source.slice(0, -ipv6End.length).padStart(16, '0');
  const groups = network.match(/[0-9a-f]{4}/g) ?? [];
  return groups.map((group) => group.replace(/^0{1,3}/, '')).join(':') + ipv6End;
}

const nobody = compileIpRanges([]);

/** The proxies whose headers are believed on a connection. @param mayForward whether its remote address may be a proxy's */
export function believedProxies(mayForward: boolean, trustedProxies: IpRanges): IpRanges {
  return mayForward ? trustedProxies : nobody;
}
