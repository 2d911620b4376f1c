import { type IpAddress, isReservedAddress, parseIpAddress } from '../../policy/ip-address.js';
import { type IpRange, parseIpRange } from '../../policy/ip-ranges.js';
import type { Problem } from '../../rest/envelope.js';

interface Range {
  readonly family: 4 | 6;
  readonly first: bigint;
  readonly last: bigint;
  /**
   * Canonical form: host bits are zero, an IPv4-mapped address is written as IPv4, and a single address has no prefix
   * length.
   */
  readonly text: string;
}

/**
 * The largest number of addresses that needs no confirmation: an IPv4 /8 or an IPv6 /16. A larger allowlist admits a
 * large part of the internet and is probably a mistake.
 */
const largestSize = { 4: 2n ** 24n, 6: 2n ** 112n } as const;

/** Checks an IP allowlist. The parser that the gateway uses decides which entries are valid. */
export function checkIpAllowlist(given: readonly string[]): CheckedAllowlist {
  const ranges = new Map<string, Range>();
  const problems = [];
  const concerns: Concern[] = [];
  for (const [index, entry] of given.entries()) {
    const path = `ipAllowlist[${index}]`;
    const parsed = parseIpRange(entry);
    if (parsed === null) {
      problems.push({ path, message: `${path} must be an IP address or CIDR, such as 203.0.113.7 or 203.0.113.0/24` });
      continue;
    }
    const range = canonical(parsed);
    ranges.set(range.text, range);
    if (sizeOf(range) > largestSize[range.family]) {
      concerns.push({ path, flag: 'open_range', what: `${range.text} admits a large part of the internet` });
    } else if (isPrivate(range)) {
      concerns.push({ path, flag: 'private_range', what: `${range.text} is not on the public internet` });
    }
  }
  const all = [...ranges.values()];
  if (!concerns.some(({ flag }) => flag === 'open_range') && (isOpen(all, 4) || isOpen(all, 6))) {
    const what = 'the entries together admit a large part of the internet';
    concerns.push({ path: 'ipAllowlist', flag: 'open_range', what });
  }
  return { entries: all.map(({ text }) => text), problems, concerns };
}

function canonical({ family, prefix, first, last }: IpRange): Range {
  const firstText = addressOf(family, BigInt(first)).text;
  const text = prefix === (family === 4 ? 32 : 128) ? firstText : `${firstText}/${prefix}`;
  return { family, first: BigInt(first), last: BigInt(last), text };
}

/** Returns the IP address that a number represents, such as 127.0.0.1 for 2130706433. */
export function addressOf(family: 4 | 6, value: bigint): IpAddress {
  const width = family === 4 ? 8n : 16n;
  const parts = Array.from({ length: family === 4 ? 4 : 8 }, (_, index, count = family === 4 ? 4 : 8) =>
    ((value >> (BigInt(count - 1 - index) * width)) & ((1n << width) - 1n)).toString(family === 4 ? 10 : 16),
  );
  const address = parseIpAddress(parts.join(family === 4 ? '.' : ':'));
  if (address === null) throw new RangeError('the number does not represent an IP address');
  return address;
}

/** Whether the first or last address of a range is private or reserved. Does not check the addresses in between. */
function isPrivate({ family, first, last }: Range): boolean {
  return isReservedAddress(addressOf(family, first)) || isReservedAddress(addressOf(family, last));
}

function sizeOf({ first, last }: Range): bigint {
  return last - first + 1n;
}

/**
 * Whether all ranges of one IP version together contain more addresses than `largestSize`. Checks the sum, because many
 * small ranges can contain as many addresses as a large one.
 */
function isOpen(ranges: readonly Range[], family: 4 | 6): boolean {
  const sorted = ranges.filter((range) => range.family === family).toSorted((a, b) => (a.first < b.first ? -1 : 1));
  let covered = 0n;
  let end = -1n;
  for (const { first, last } of sorted) {
    const from = first > end ? first : end + 1n;
    if (last < from) continue;
    covered += last - from + 1n;
    end = last;
  }
  return covered > largestSize[family];
}

/**
 * The words with which a request confirms unusual settings. These settings need confirmation, because they are usually
 * mistakes.
 */
export const confirmations = ['open_range', 'private_range', 'empty_list'] as const;

/** An entry or list that is probably a mistake, so the request must confirm it. */
export interface Concern {
  readonly path: string;
  readonly flag: (typeof confirmations)[number];
  readonly what: string;
}

/**
 * The result of a check: the entries in canonical form without duplicates, the problems, and what the request must
 * confirm.
 */
export interface CheckedAllowlist {
  readonly entries: readonly string[];
  readonly problems: readonly Problem[];
  readonly concerns: readonly Concern[];
}
