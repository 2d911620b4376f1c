import ipaddr from 'ipaddr.js';
import type { IpAddress } from './ip-address.js';

/** Says whether an address is private, loopback, link-local, documentation or otherwise not on the public internet. */
export function isReservedAddress(address: IpAddress): boolean {
  return ipaddr.parse(address.text).range() !== 'unicast';
}
