import { type IpAddress, parseIpAddress } from '../../policy/ip-address.js';
import { memoize } from '../../policy/memoize.js';
import type { AddressCount } from '../batch.js';

/** Where requests came from. */
export interface Place {
  readonly address: string;
  /** The block of addresses that usually belongs to one user: the first 24 bits of IPv4, 64 of IPv6. */
  readonly block: string;
  /** ISO 3166 country code; null if unknown, as without a GeoIP database. */
  readonly country: string | null;
  readonly asNumber: number | null;
  /**
   * The autonomous system (AS). If the AS number is unknown, the network is the first 16 bits of an IPv4 address or the
   * first 32 bits of an IPv6 address. Null if neither AS number nor country is known.
   */
  readonly network: string | null;
}

const blocksInMemory = 50_000;

/** Returns the block of an address, and the network that is used if its AS number is unknown. */
const namesOf = memoize(blocksInMemory, (text) => {
  // The registry can store networks, such as 192.0.2.0/24, in place of addresses. Parse the part before the slash.
  const address = parseIpAddress(text.split('/', 1)[0] ?? '');
  return address === null ? { block: text, network: text } : { block: blockOf(address), network: networkOf(address) };
});

function blockOf(address: IpAddress): string {
  return address.family === 4 ? (address.value >>> 8).toString(36) : `6${(address.value >> 64n).toString(36)}`;
}

function networkOf(address: IpAddress): string {
  if (address.family === 4) return `${address.value >>> 24}.${(address.value >>> 16) & 0xff}.0.0/16`;
  const [high, low] = [address.value >> 112n, (address.value >> 96n) & 0xffffn];
  return `${high.toString(16)}:${low.toString(16)}::/32`;
}

/** Returns where the requests of a row came from; null for the row that adds up several addresses. */
export function placeOf({ address, country, asNumber }: AddressCount): Place | null {
  if (address === null) return null;
  const { block, network } = namesOf(address);
  const ofAs = asNumber === null ? null : `AS${asNumber}`;
  return { address, block, country, asNumber, network: ofAs ?? (country === null ? null : network) };
}

const longestProgram = 32;

/** Returns the name of the program in a User-Agent, without its version. */
export function programOf(agent: string): string {
  return agent.split(/[\s/]/, 1)[0]?.toLowerCase().slice(0, longestProgram) ?? '';
}
