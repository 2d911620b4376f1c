import ipaddr from 'ipaddr.js';

/**
 * An IP address in canonical form, so that addresses can be compared. An IPv4-mapped IPv6 address is stored as IPv4.
 */
export type IpAddress = Ipv4Address | Ipv6Address;

interface Ipv4Address {
  readonly family: 4;
  readonly value: number;
  readonly text: string;
}

interface Ipv6Address {
  readonly family: 6;
  readonly value: bigint;
  readonly text: string;
  /** The client's IPv4 address that a NAT64, 6to4 or Teredo address contains; null for other addresses. */
  readonly embedded: Ipv4Address | null;
}

const longestAddress = 45; // "ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255"
const onlyAddressCharacters = /^[0-9a-f:.]+$/i;

/**
 * Parses one IP address strictly. Rejects octal and hexadecimal IPv4, short forms, zones, ports and white space.
 * Otherwise a client could pass an allowlist with an octal address: ipaddr.js reads `010.0.0.1` as 8.0.0.1.
 * @returns the address, or null for any other text
 */
export function parseIpAddress(text: string): IpAddress | null {
  if (text.length > longestAddress || !onlyAddressCharacters.test(text)) return null;
  if (!text.includes(':')) {
    return ipaddr.IPv4.isValidFourPartDecimal(text) ? fromIpv4(ipaddr.IPv4.parse(text)) : null;
  }
  const dottedPart = text.includes('.') ? text.slice(text.lastIndexOf(':') + 1) : null;
  if (dottedPart !== null && !ipaddr.IPv4.isValidFourPartDecimal(dottedPart)) return null;
  // ipaddr.js reads `::1.2.3.4`, the deprecated IPv4-compatible form, as IPv4, but the equivalent `::0:1.2.3.4` as
  // IPv6. Use the second form, so that both texts give the same address.
  const unambiguous = dottedPart !== null && text === `::${dottedPart}` ? `::0:${dottedPart}` : text;
  if (!ipaddr.IPv6.isValid(unambiguous)) return null;
  const address = ipaddr.IPv6.parse(unambiguous);
  return address.isIPv4MappedAddress() ? fromIpv4(address.toIPv4Address()) : fromIpv6(address);
}

function fromIpv4(address: ipaddr.IPv4): Ipv4Address {
  const [a = 0, b = 0, c = 0, d = 0] = address.octets;
  return { family: 4, value: ((a << 24) | (b << 16) | (c << 8) | d) >>> 0, text: address.toString() };
}

function fromIpv6(address: ipaddr.IPv6): Ipv6Address {
  let value = 0n;
  for (const part of address.parts) value = (value << 16n) | BigInt(part);
  return { family: 6, value, text: address.toRFC5952String(), embedded: embeddedIn(address.parts) };
}

/**
 * Extracts the IPv4 address from a NAT64 address with the well-known prefix (RFC 6052), a 6to4 address (RFC 3056) or a
 * Teredo address (RFC 4380). A Teredo address contains the IPv4 address with inverted bits. Ignores the local-use NAT64
 * prefix 64:ff9b:1::/48 (RFC 8215), because each network chooses where the IPv4 address is in these addresses.
 */
function embeddedIn([a, b, c = 0, d, e, f, g = 0, h = 0]: readonly number[]): Ipv4Address | null {
  if (a === 0x64 && b === 0xff9b && c === 0 && d === 0 && e === 0 && f === 0) return ipv4Of(g, h);
  if (a === 0x2002) return ipv4Of(b ?? 0, c);
  return a === 0x2001 && b === 0 ? ipv4Of(g ^ 0xffff, h ^ 0xffff) : null;
}

function ipv4Of(high: number, low: number): Ipv4Address {
  return fromIpv4(new ipaddr.IPv4([high >> 8, high & 0xff, low >> 8, low & 0xff]));
}

/** Whether an address is private, loopback, link-local, for documentation, or otherwise not on the public internet. */
export function isReservedAddress(address: IpAddress): boolean {
  return ipaddr.parse(address.text).range() !== 'unicast';
}
