import { isIPv4 } from 'node:net';

/**
 * Whether a host is a loopback host.
 * @param host a name, an IP address, or an IPv6 address in brackets
 */
export function isLoopback(host: string): boolean {
  const name = host.toLowerCase().replace(/^\[(.*)\]$/, '$1');
  return name === 'localhost' || name === '::1' || (isIPv4(name) && name.startsWith('127.'));
}
