import { createHash } from 'node:crypto';
import { setImmediate } from 'node:timers/promises';
import type { TorExits, TorListStatus } from '../../gateway/ports.js';
import { type IpAddress, isReservedAddress } from '../../policy/ip-address.js';
import type { IpRanges } from '../../policy/ip-ranges.js';
import { ExitListRefused } from './exit-source.js';

/** So many addresses take about a millisecond; after them requests have their turn. */
const addressesAtATime = 1_000;

/**
 * A set of Tor exits that never changes. Addresses are compared by value, so that no spelling of one slips past; one that embeds
 * the IPv4 address of an exit is an exit too.
 */
export class TorExitList implements TorExits {
  readonly #exits: Draft;
  /** SHA-256 of the addresses in their order, a line each; null where there are none. */
  readonly digest: string | null;

  /** @param exits addresses, or a draft that nobody adds to any more */
  constructor(exits: Iterable<IpAddress> | Draft) {
    this.#exits = exits instanceof Draft ? exits : new Draft();
    if (!(exits instanceof Draft)) for (const address of exits) this.#exits.add(address);
    this.digest = this.size === 0 ? null : this.#exits.hash.digest('hex');
  }

  /** Joins lists, a little at a time, so that the requests of a busy gateway do not wait for it. */
  static async join(lists: readonly (readonly IpAddress[])[]): Promise<TorExitList> {
    const draft = new Draft();
    for (const list of lists) {
      for (const [index, address] of list.entries()) {
        draft.add(address);
        if (index % addressesAtATime === 0) await setImmediate();
      }
    }
    return new TorExitList(draft);
  }

  has(address: IpAddress): boolean {
    if (this.#exits.has(address)) return true;
    return address.family === 6 && address.embedded !== null && this.#exits.has(address.embedded);
  }

  get size(): number {
    return this.#exits.ipv4.size + this.#exits.ipv6.size;
  }

  unavailableReason(): null {
    return null;
  }

  close(): Promise<void> {
    return Promise.resolve();
  }

  status(): TorListStatus {
    return { available: this.size > 0, digest: this.digest, size: this.size, ageSeconds: null, sources: [] };
  }
}

/** A list while it is made. */
class Draft {
  /** Addresses as signed numbers: those that V8 holds without an object for each are found in half the time. */
  readonly ipv4 = new Set<number>();
  readonly ipv6 = new Set<bigint>();
  readonly hash = createHash('sha256');

  has(address: IpAddress): boolean {
    return address.family === 4 ? this.ipv4.has(address.value | 0) : this.ipv6.has(address.value);
  }

  add(address: IpAddress): void {
    if (this.has(address)) return;
    if (address.family === 4) this.ipv4.add(address.value | 0);
    else this.ipv6.add(address.value);
    this.hash.update(`${address.text}\n`);
  }
}

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
const admittedAtATime = 200;

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
    if (count % admittedAtATime === 0) await setImmediate();
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
