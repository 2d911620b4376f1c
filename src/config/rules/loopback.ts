import { isIPv4 } from 'node:net';
import { parseIpAddress } from '../../policy/ip-address.js';

/**
 * Whether a host is a loopback host.
 * @param host a name, an IP address, or an IPv6 address in brackets
 */
export function isLoopback(host: string): boolean {
  const name = bareHost(host);
  return name === 'localhost' || name === '::1' || (isIPv4(name) && name.startsWith('127.'));
}

/**
 * Whether a host is a loopback host or a wildcard address (0.0.0.0 or ::). A listener on it accepts connections to
 * loopback hosts, and a connection to it stays on the same machine.
 * @param host as for `isLoopback`
 */
export function includesLoopback(host: string): boolean {
  return isLoopback(host) || ['0.0.0.0', '::'].includes(bareHost(host));
}

/**
 * Returns a host in a form that can be compared: a name in lower case, or an IP address in canonical form without
 * brackets.
 */
export function bareHost(host: string): string {
  const name = host.toLowerCase().replace(/^\[(.*)\]$/, '$1');
  return parseIpAddress(name)?.text ?? name;
}
