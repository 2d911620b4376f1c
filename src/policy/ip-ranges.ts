import { parseIpAddress } from './ip-address.js';
import type { IpAddress } from './ip-address.js';

/** A set of addresses, compiled once from addresses and CIDRs; a look-up is a binary search. */
export interface IpRanges {
  contains(address: IpAddress): boolean;
}

/** An allowlist entry, trusted proxy or other range that is neither an IP address nor a CIDR. */
export class InvalidIpRange extends Error {
  constructor(readonly entry: string) {
    super(`"${entry.slice(0, 64)}" is not an IP address or CIDR`);
    this.name = 'InvalidIpRange';
  }
}

interface Range<T extends number | bigint> {
  first: T;
  last: T;
}

type ParsedRange = { family: 4; range: Range<number> } | { family: 6; range: Range<bigint> };

const prefixLength = /^(?:0|[1-9]\d{0,2})$/;

/**
 * Compiles addresses and CIDRs (`192.0.2.7`, `192.0.2.0/24`, `2001:db8::/32`, `::ffff:192.0.2.0/120`).
 * Host bits below the prefix are ignored. An IPv6 range never admits an IPv4 address, except one in IPv4-mapped form.
 * @throws InvalidIpRange for the first entry that is neither
 */
export function compileIpRanges(entries: readonly string[]): IpRanges {
  const ipv4: Range<number>[] = [];
  const ipv6: Range<bigint>[] = [];
  for (const entry of entries) {
    const parsed = parseRange(entry);
    if (parsed.family === 4) ipv4.push(parsed.range);
    else ipv6.push(parsed.range);
  }
  const ipv4Merged = merge(ipv4);
  const ipv6Merged = merge(ipv6);
  return {
    contains: (address) =>
      address.family === 4 ? includes(ipv4Merged, address.value) : includes(ipv6Merged, address.value),
  };
}

function parseRange(entry: string): ParsedRange {
  const slash = entry.indexOf('/');
  const addressText = slash === -1 ? entry : entry.slice(0, slash);
  const address = parseIpAddress(addressText);
  if (address === null) throw new InvalidIpRange(entry);
  if (slash === -1) return addressRange(address);

  const lengthText = entry.slice(slash + 1);
  if (!prefixLength.test(lengthText)) throw new InvalidIpRange(entry);
  // An IPv4-mapped prefix counts its bits in the IPv6 form.
  const mapped = address.family === 4 && addressText.includes(':');
  const length = Number(lengthText) - (mapped ? 96 : 0);
  if (length < 0 || length > (address.family === 4 ? 32 : 128)) throw new InvalidIpRange(entry);

  if (address.family === 4) {
    const size = 2 ** (32 - length);
    const first = Math.floor(address.value / size) * size;
    return { family: 4, range: { first, last: first + size - 1 } };
  }
  const hostBits = BigInt(128 - length);
  const first = (address.value >> hostBits) << hostBits;
  return { family: 6, range: { first, last: first + (1n << hostBits) - 1n } };
}

function addressRange(address: IpAddress): ParsedRange {
  return address.family === 4
    ? { family: 4, range: { first: address.value, last: address.value } }
    : { family: 6, range: { first: address.value, last: address.value } };
}

/** Sorted, without overlaps, so that the last range that begins at or below a value is the only candidate. */
function merge<T extends number | bigint>(ranges: Range<T>[]): Range<T>[] {
  const merged: Range<T>[] = [];
  for (const range of ranges.toSorted((a, b) => (a.first < b.first ? -1 : a.first > b.first ? 1 : 0))) {
    const previous = merged.at(-1);
    if (previous === undefined || range.first > previous.last) merged.push({ ...range });
    else if (range.last > previous.last) previous.last = range.last;
  }
  return merged;
}

function includes<T extends number | bigint>(ranges: readonly Range<T>[], value: T): boolean {
  let low = 0;
  let high = ranges.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    const range = ranges[middle];
    if (range !== undefined && range.first <= value) low = middle + 1;
    else high = middle;
  }
  const candidate = ranges[low - 1];
  return candidate !== undefined && value <= candidate.last;
}
