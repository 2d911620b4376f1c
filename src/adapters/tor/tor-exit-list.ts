import { createHash } from 'node:crypto';
import { setImmediate } from 'node:timers/promises';
import type { TorExits, TorListStatus } from '../../gateway/ports.js';
import type { IpAddress } from '../../policy/ip-address.js';

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
