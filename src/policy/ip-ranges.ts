import { parseIpAddress } from './ip-address.js';
import type { IpAddress } from './ip-address.js';

/** A set of IP ranges, compiled once from addresses and CIDRs. A look-up is a binary search. */
export interface IpRanges {
  /**
   * Whether the set contains the address itself. Used for trusted proxies, because any client may call from an address
   * that embeds a proxy's.
   */
  contains(address: IpAddress): boolean;
  /** Whether the set contains the address or its embedded IPv4 address. Used for clients. */
  admits(address: IpAddress): boolean;
  /** Number of entries in the source list. */
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

/** One address or CIDR with its host bits cleared. IPv4-mapped IPv6 becomes IPv4, with the IPv4 prefix length. */
export type IpRange = { readonly prefix: number } & (
  ({ readonly family: 4 } & Bounds<number>) | ({ readonly family: 6 } & Bounds<bigint>)
);

const prefixLength = /^(?:0|[1-9]\d{0,2})$/;

/**
 * Compiles addresses and CIDRs (`192.0.2.7`, `192.0.2.0/24`, `2001:db8::/32`, `::ffff:192.0.2.0/120`). Host bits are
 * ignored. An IPv6 range never admits an IPv4 address unless the range is IPv4-mapped.
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

/** A class, because a closure would take as much memory as a short list. */
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

/** Parses one address or CIDR in the syntax of `compileIpRanges`; null if invalid. */
export function parseIpRange(entry: string): IpRange | null {
  const [addressText = '', lengthText, ...more] = entry.split('/');
  const address = parseIpAddress(addressText);
  if (address === null || more.length > 0 || (lengthText !== undefined && !prefixLength.test(lengthText))) return null;
  // The prefix length of an IPv4-mapped CIDR refers to its IPv6 form.
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

/** Shared empty list: most allowlists have no addresses of one family. */
const noAddresses: readonly never[] = [];

/**
 * Merges ranges into alternating first and last addresses, sorted and without overlaps. The last range that begins at
 * or below a value is then the only candidate. A flat array of exact length saves memory for a hundred thousand
 * merchants' lists.
 */
function merge<T extends number | bigint>(ranges: readonly Bounds<T>[]): readonly T[] {
  const merged: T[] = [];
  for (const { first, last } of ranges.toSorted((a, b) => (a.first < b.first ? -1 : a.first > b.first ? 1 : 0))) {
    const end = merged.at(-1);
    if (end === undefined || first > end) merged.push(first, last);
    else if (last > end) merged[merged.length - 1] = last;
  }
  return merged.length === 0 ? noAddresses : merged.slice(); // push leaves spare capacity; slice drops it
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
