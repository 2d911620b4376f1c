import type { IpAddress } from '../policy/ip-address.js';

/**
 * Whom an address stands for where callers are counted: itself, or for IPv6 its /64, which is what one subscriber has;
 * counted one by one, its 2^64 addresses would be as many callers.
 */
export function sourceOf(address: IpAddress): string {
  if (address.family === 4) return address.text;
  const network = (address.value >> 64n).toString(16).padStart(16, '0');
  return `${network.replace(/0{0,3}([0-9a-f]{1,4})(?=(?:[0-9a-f]{4})*$)/g, '$1:')}:/64`;
}
