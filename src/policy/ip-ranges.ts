import { parseIpAddress } from './ip-address.js';
import type { IpAddress } from './ip-address.js';

/** A set of IP ranges, compiled from addresses and CIDRs. A look-up is a binary search. */
export interface IpRanges {
  /**
   * Whether the set contains exactly this address. Embedded IPv4 addresses are ignored. Used for trusted proxies,
   * because any client can call from an IPv6 address that embeds a proxy's IPv4 address.
   */
  contains(address: IpAddress): boolean;
  /**
   * Whether the set contains this address or the IPv4 address embedded in it (NAT64, 6to4, Teredo). Used for client
   * allowlists.
   */
  admits(address: IpAddress): boolean;
  /** Number of entries in the list from which the set was compiled. */
  readonly size: number;
}

/** Error for an allowlist entry, trusted proxy or other range that is neither an IP address nor a CIDR. */
export class InvalidIpRange extends Error {
  constructor(readonly entry: string) {
    super(`"${entry.slice(0, 64)}" is not an IP address or CIDR`);
    this.name = 'InvalidIpRange';
  }
}

interface Bounds<T extends number | bigint> {
  readonly first: T;
  readonly last: T;
}

/**
 * One address or CIDR, with its host bits cleared. An IPv4-mapped IPv6 CIDR is converted to IPv4 with the matching
 * prefix length.
 */
export type IpRange = { readonly prefix: number } & (
  ({ readonly family: 4 } & Bounds<number>) | ({ readonly family: 6 } & Bounds<bigint>)
);

const prefixLength = /^(?:0|[1-9]\d{0,2})$/;

/**
 * Compiles addresses and CIDRs such as `192.0.2.7`, `192.0.2.0/24`, `2001:db8::/32` or `::ffff:192.0.2.0/120`. Host
 * bits are ignored. An IPv6 range contains IPv4 addresses only if the range is IPv4-mapped.
 * @throws InvalidIpRange for the first invalid entry
 */
export function compileIpRanges(entries: readonly string[]): IpRanges {
  const ipv4: Bounds<number>[] = [];
  const ipv6: Bounds<bigint>[] = [];
  for (const entry of entries) {
    const range = parseIpRange(entry);
    if (range === null) throw new InvalidIpRange(entry);
    if (range.family === 4) ipv4.push(range);
    else ipv6.push(range);
  }
  return new CompiledRanges(merge(ipv4), merge(ipv6), entries.length);
}

/** This is a class because a closure per allowlist would use as much memory as a short allowlist itself. */
class CompiledRanges implements IpRanges {
  readonly #ipv4: readonly number[];
  readonly #ipv6: readonly bigint[];
  readonly size: number;

  constructor(ipv4: readonly number[], ipv6: readonly bigint[], size: number) {
    this.#ipv4 = ipv4;
    this.#ipv6 = ipv6;
    this.size = size;
  }

  contains(address: IpAddress): boolean {
    return address.family === 4 ? includes(this.#ipv4, address.value) : includes(this.#ipv6, address.value);
  }

  admits(address: IpAddress): boolean {
    if (this.contains(address)) return true;
    return address.family === 6 && address.embedded !== null && this.contains(address.embedded);
  }
}

/** Parses one address or CIDR as described at `compileIpRanges`; returns null if it is invalid. */
export function parseIpRange(entry: string): IpRange | null {
  const [addressText = '', lengthText, ...more] = entry.split('/');
  const address = parseIpAddress(addressText);
  if (address === null || more.length > 0 || (lengthText !== undefined && !prefixLength.test(lengthText))) return null;
  // The prefix length of an IPv4-mapped CIDR such as `::ffff:192.0.2.0/120` includes the 96 bits before the IPv4
  // address.
  const mappedBits = address.family === 4 && addressText.includes(':') ? 96 : 0;
  const bits = address.family === 4 ? 32 : 128;
  const prefix = lengthText === undefined ? bits : Number(lengthText) - mappedBits;
  if (prefix < 0 || prefix > bits) return null;
  if (address.family === 4) {
    const size = 2 ** (32 - prefix);
    const first = Math.floor(address.value / size) * size;
    return { family: 4, prefix, first, last: first + size - 1 };
  }
  const hostBits = BigInt(128 - prefix);
  const first = (address.value >> hostBits) << hostBits;
  return { family: 6, prefix, first, last: first + (1n << hostBits) - 1n };
}

/** Empty array shared by all allowlists, to save memory: most allowlists have no IPv4 ranges or no IPv6 ranges. */
const noAddresses: readonly never[] = [];

/**
 * Merges overlapping ranges, and returns one sorted array: first address, last address, first address, and so on. To
 * test an address, only the last range that starts at or below it must be checked. A flat array without spare capacity
 * saves memory, because each of 100,000 merchants could have such a list.
 */
function merge<T extends number | bigint>(ranges: readonly Bounds<T>[]): readonly T[] {
  const merged: T[] = [];
  for (const { first, last } of ranges.toSorted((a, b) => (a.first < b.first ? -1 : a.first > b.first ? 1 : 0))) {
    const end = merged.at(-1);
    if (end === undefined || first > end) merged.push(first, last);
    else if (last > end) merged[merged.length - 1] = last;
  }
  return merged.length === 0 ? noAddresses : merged.slice(); // slice drops the spare capacity that push reserved
}

function includes<T extends number | bigint>(bounds: readonly T[], value: T): boolean {
  let low = 0;
  let high = bounds.length / 2;
  while (low < high) {
    const middle = (low + high) >>> 1;
    const first = bounds[2 * middle];
    if (first !== undefined && first <= value) low = middle + 1;
    else high = middle;
  }
  const last = bounds[2 * low - 1];
  return last !== undefined && value <= last;
}
