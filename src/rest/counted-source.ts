import { sourceOf } from '../policy/client-address.js';
import { parseIpAddress } from '../policy/ip-address.js';

/**
 * Returns the unit in which clients with this address are counted. For an IPv4 address, and for an IPv6 address that
 * embeds one, this is the IPv4 address. For any other IPv6 address, it is the /64, because one subscriber has all
 * addresses of a /64. Returns a text that is no IP address unchanged.
 */
export function countedSource(address: string): string {
  const parsed = parseIpAddress(address);
  return parsed === null ? address : sourceOf(parsed);
}

/**
 * Returns an IP address of a socket, without the prefix `::ffff:` of a mapped IPv4 address and without a zone. Returns
 * null if the address is unknown.
 */
export function plainAddress(address: string | undefined): string | null {
  return address?.replace(/^::ffff:/i, '').replace(/%.*$/, '') ?? null;
}
