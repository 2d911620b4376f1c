import ipaddr from 'ipaddr.js';

/** An IP address in the one form in which addresses are compared. IPv4-mapped IPv6 is IPv4. */
export type IpAddress =
  | { readonly family: 4; readonly value: number; readonly text: string }
  | { readonly family: 6; readonly value: bigint; readonly text: string };

const longestAddress = 45; // "ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255"
const onlyAddressCharacters = /^[0-9a-f:.]+$/i;

/**
 * Reads one IP address, strictly: no octal or hexadecimal IPv4, no short forms, no zone, no port, no blanks.
 * ipaddr.js alone would read `010.0.0.1` as 8.0.0.1 and let a caller choose how an allowlist understands it.
 * @returns the address, or null for anything else
 */
export function parseIpAddress(text: string): IpAddress | null {
  if (text.length > longestAddress || !onlyAddressCharacters.test(text)) return null;
  if (!text.includes(':')) {
    return ipaddr.IPv4.isValidFourPartDecimal(text) ? fromIpv4(ipaddr.IPv4.parse(text)) : null;
  }
  const dottedPart = text.includes('.') ? text.slice(text.lastIndexOf(':') + 1) : null;
  if (dottedPart !== null && !ipaddr.IPv4.isValidFourPartDecimal(dottedPart)) return null;
  // ipaddr.js takes `::1.2.3.4`, the deprecated IPv4-compatible form, for IPv4; written out it is the IPv6 that it is.
  const unambiguous = dottedPart !== null && text === `::${dottedPart}` ? `::0:${dottedPart}` : text;
  if (!ipaddr.IPv6.isValid(unambiguous)) return null;
  const address = ipaddr.IPv6.parse(unambiguous);
  return address.isIPv4MappedAddress() ? fromIpv4(address.toIPv4Address()) : fromIpv6(address);
}

function fromIpv4(address: ipaddr.IPv4): IpAddress {
  const [a = 0, b = 0, c = 0, d = 0] = address.octets;
  return { family: 4, value: ((a << 24) | (b << 16) | (c << 8) | d) >>> 0, text: address.toString() };
}

function fromIpv6(address: ipaddr.IPv6): IpAddress {
  let value = 0n;
  for (const part of address.parts) value = (value << 16n) | BigInt(part);
  return { family: 6, value, text: address.toRFC5952String() };
}
