import type { IpAddress } from '../policy/ip-address.js';

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
