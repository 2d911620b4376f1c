import { createHash } from 'node:crypto';
import { setImmediate } from 'node:timers/promises';
import type { TorExits, TorListStatus } from '../../gateway/ports.js';
import { type IpAddress, isReservedAddress } from '../../policy/ip-address.js';
import type { IpRanges } from '../../policy/ip-ranges.js';
import { ExitListRejected } from './exit-source.js';

/** Number of addresses in a batch, which takes about a millisecond. Between batches, the event loop serves requests. */
const addressesAtATime = 1_000;

/**
 * An immutable set of Tor exit addresses. Compares addresses by value, so that another spelling of an address does not
 * evade the check. An IPv6 address that embeds the IPv4 address of an exit counts as an exit.
 */
export class TorExitList implements TorExits {
  readonly #exits: TorExitListBuilder;
  /** SHA-256 of the addresses in their order, each followed by a line feed; null for an empty list. */
  readonly digest: string | null;

  /** @param exits addresses, or a builder that must not be changed afterwards */
  constructor(exits: Iterable<IpAddress> | TorExitListBuilder) {
    this.#exits = exits instanceof TorExitListBuilder ? exits : new TorExitListBuilder();
    if (!(exits instanceof TorExitListBuilder)) for (const address of exits) this.#exits.add(address);
    this.digest = this.size === 0 ? null : this.#exits.hash.digest('hex');
  }

  /** Merges lists in small batches, so that requests are not delayed. */
  static async join(lists: readonly (readonly IpAddress[])[]): Promise<TorExitList> {
    const draft = new TorExitListBuilder();
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

/** A list under construction, to which addresses can be added. */
class TorExitListBuilder {
  /**
   * IPv4 addresses as signed 32-bit numbers. V8 stores such a number without a heap object, and finds it in half the
   * time that a number with a heap object takes.
   */
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

/** Rules for the addresses in a list. */
export interface AdmissionRules {
  /** Whether to keep private, loopback, documentation and other reserved addresses. If not, they are left out. */
  readonly allowReserved: boolean;
  /**
   * The proxies in front of the gateway. A list that contains such a proxy is rejected, because the list would block
   * every client behind that proxy.
   */
  readonly trustedProxies: IpRanges;
}

/** The accepted addresses of a list. */
export interface AdmittedExits {
  /** The addresses, without duplicates. */
  readonly addresses: readonly IpAddress[];
  /** SHA-256 in hex of the addresses in their order, each followed by a line feed. */
  readonly digest: string;
  /** Number of reserved addresses that were left out. */
  readonly leftOut: number;
}

/** Maximum number of addresses in a list: more than ten times the number of relays in the Tor network. */
export const maxExits = 200_000;
/**
 * A list with fewer addresses than this is for a test or written by hand, so a list of any size can replace it.
 */
const smallList = 10;
/** Number of addresses in a batch, which takes about a millisecond. Between batches, the event loop serves requests. */
const admittedAtATime = 200;

/**
 * Checks the addresses of a list in small batches, so that requests are not delayed. Returns the accepted addresses.
 * @param addresses can be parsed lazily; an error of the parser rejects the promise
 * @throws ExitListRejected if the list has no address, too many addresses, or a trusted proxy
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
      throw new ExitListRejected(
        'names_trusted_proxy',
        `the list contains ${address.text}, which is in trustedProxies: a trusted proxy cannot be a Tor exit`,
      );
    }
    if (admitted.size >= maxExits)
      throw new ExitListRejected('too_large', `the list contains more than ${maxExits} addresses`);
    admitted.set(address.text, address);
    hash.update(`${address.text}\n`);
  }
  if (admitted.size === 0) {
    const reserved = `: all its addresses (${leftOut}) are in reserved ranges, which are accepted only with torExits.allowReserved`;
    throw new ExitListRejected(
      'empty',
      `the list contains no address that could be a Tor exit${leftOut === 0 ? '' : reserved}`,
    );
  }
  return { addresses: [...admitted.values()], digest: hash.digest('hex'), leftOut };
}

/**
 * Rejects a list with less than half as many addresses as the previous one. Tor does not lose so many exits within an
 * hour, so a truncated download or a server error is more likely.
 * @throws ExitListRejected
 */
export function rejectShrunken(size: number, sizeBefore: number): void {
  if (sizeBefore < smallList || size * 2 >= sizeBefore) return;
  throw new ExitListRejected(
    'shrunken',
    `the list is much smaller than the previous list (${size} instead of ${sizeBefore} addresses); if that is correct, run "merchant-gateway tor-exits refresh --accept-smaller"`,
  );
}
