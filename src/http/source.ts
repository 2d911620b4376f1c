import type { IpAddress } from '../policy/ip-address.js';

/**
 * Whom an address stands for where callers are counted: itself, or for IPv6 its /64, which is what one subscriber has;
 * counted one by one, its 2^64 addresses would be as many callers.
 */
export function sourceOf(address: IpAddress): string {
  return address.family === 4 ? address.text : `${(address.value >> 64n).toString(16)}::/64`;
}
