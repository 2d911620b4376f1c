import { createHash } from 'node:crypto';
import { setImmediate } from 'node:timers/promises';
import type { IpAddress } from '../../policy/ip-address.js';
import type { IpRanges } from '../../policy/ip-ranges.js';
import { isReservedAddress } from '../../policy/reserved-addresses.js';
import { ExitListRefused } from './exit-list-refused.js';

/** What a list may hold. */
export interface AdmissionRules {
  /** Whether to keep private, loopback, documentation and other reserved addresses. */
  readonly allowReserved: boolean;
  /** The proxies in front: a list with one of them would refuse everybody behind it. */
  readonly trustedProxies: IpRanges;
}

/** The addresses of a list that may be used. */
export interface AdmittedExits {
  /** Each once. */
  readonly addresses: readonly IpAddress[];
  /** SHA-256, in hex, of the addresses in their order, a line each. */
  readonly digest: string;
  /** Reserved addresses that were left out. */
  readonly leftOut: number;
}

/** More than ten times as many as the Tor network has relays. */
export const maxExits = 200_000;
/** Below this a list may change as it likes: a test's, or one that an operator writes by hand. */
const smallList = 10;
/** So many addresses take about a millisecond; after them requests have their turn. */
const addressesAtATime = 200;

/**
 * Admits a list, a little at a time, so that the requests of a busy gateway do not wait for it.
 * @param addresses read as they are needed; what it throws is passed on
 * @throws ExitListRefused for a list without an address, with too many, or with a trusted proxy
 */
export async function admitExits(addresses: Iterable<IpAddress>, rules: AdmissionRules): Promise<AdmittedExits> {
  const admitted = new Map<string, IpAddress>();
  const hash = createHash('sha256');
  let leftOut = 0;
  let count = 0;
  for (const address of addresses) {
    count += 1;
    if (count % addressesAtATime === 0) await setImmediate();
    if (admitted.has(address.text)) continue;
    if (!rules.allowReserved && isReservedAddress(address)) {
      leftOut += 1;
      continue;
    }
    if (rules.trustedProxies.contains(address)) {
      throw new ExitListRefused('names_trusted_proxy', `it holds ${address.text}, which is in trustedProxies`);
    }
    if (admitted.size >= maxExits) throw new ExitListRefused('too_large', `it holds more than ${maxExits} addresses`);
    admitted.set(address.text, address);
    hash.update(`${address.text}\n`);
  }
  if (admitted.size === 0) {
    const reserved = `: the ${leftOut} in it are in reserved ranges, which torExits.allowReserved would keep`;
    throw new ExitListRefused('empty', `it holds no address that could be a Tor exit${leftOut === 0 ? '' : reserved}`);
  }
  return { addresses: [...admitted.values()], digest: hash.digest('hex'), leftOut };
}

/**
 * Refuses a list that has lost more than half of the one before: Tor's exits do not go within an hour, but downloads
 * and the servers behind them do.
 * @throws ExitListRefused
 */
export function refuseShrunken(size: number, sizeBefore: number): void {
  if (sizeBefore < smallList || size * 2 >= sizeBefore) return;
  throw new ExitListRefused(
    'shrunken',
    `it has ${size} addresses and the one before has ${sizeBefore}; if that is right, tor-exits refresh --accept-smaller takes it`,
  );
}
