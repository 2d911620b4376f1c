import { parseIpAddress } from './ip-address.js';
import type { IpAddress } from './ip-address.js';

/** A set of addresses, compiled once from addresses and CIDRs; a look-up is a binary search. */
export interface IpRanges {
  /** Whether the address itself is in it, as of a proxy: anybody may call from an address that embeds that of one. */
  contains(address: IpAddress): boolean;
  /** Whether the address or the IPv4 address that it embeds is in it, as of a client. */
  admits(address: IpAddress): boolean;
  /** How many entries it was compiled from. */
  readonly size: number;
}

/** An allowlist entry, trusted proxy or other range that is neither an IP address nor a CIDR. */
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

/** One address or CIDR, host bits cleared. IPv4-mapped IPv6 is IPv4, with the prefix length of that. */
export type IpRange = { readonly prefix: number } & (
  ({ readonly family: 4 } & Bounds<number>) | ({ readonly family: 6 } & Bounds<bigint>)
);

const prefixLength = /^(?:0|[1-9]\d{0,2})$/;

/**
 * Compiles addresses and CIDRs (`192.0.2.7`, `192.0.2.0/24`, `2001:db8::/32`, `::ffff:192.0.2.0/120`).
 * Host bits below the prefix are ignored. An IPv6 range never admits an IPv4 address, except one in IPv4-mapped form.
 * @throws InvalidIpRange for the first entry that is neither
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

/** No closure: that would be as large as a short list. */
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

/** Reads one address or CIDR, as `compileIpRanges` understands it; null for anything else. */
export function parseIpRange(entry: string): IpRange | null {
  const [addressText = '', lengthText, ...more] = entry.split('/');
  const address = parseIpAddress(addressText);
  if (address === null || more.length > 0 || (lengthText !== undefined && !prefixLength.test(lengthText))) return null;
  // An IPv4-mapped prefix counts its bits in the IPv6 form.
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

/** Of a family of which a list has no addresses, as most have none of one. */
const none: readonly never[] = [];

/**
 * First and last address of each range by turns, sorted and without overlaps, so that the last range that begins at or
 * below a value is the only candidate. Flat and as long as they are: a hundred thousand merchants' lists may be held.
 */
function merge<T extends number | bigint>(ranges: readonly Bounds<T>[]): readonly T[] {
  const merged: T[] = [];
  for (const { first, last } of ranges.toSorted((a, b) => (a.first < b.first ? -1 : a.first > b.first ? 1 : 0))) {
    const end = merged.at(-1);
    if (end === undefined || first > end) merged.push(first, last);
    else if (last > end) merged[merged.length - 1] = last;
  }
  return merged.length === 0 ? none : merged.slice(); // what is pushed to has room for more
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
