import type { IpAddress } from '../../policy/ip-address.js';
import { expiresSince } from './list-date.js';
import type { SourceList } from './source-lists.js';
import { TorExitList } from './tor-exit-list.js';

/** The list in force: the sources' lists joined, swapped whole, and none at all when all of them are too old. */
export class CurrentExits {
  #list = new TorExitList([]);
  /** The digests of what is joined. */
  #joined = '';
  /** The date from which the age of the newest list counts, in milliseconds since 1970. */
  #expiresSince = -Infinity;

  constructor(readonly maxAgeMilliseconds: number) {}

  get list(): TorExitList {
    return this.#list;
  }

  isAvailable(now: number): boolean {
    return now - this.#expiresSince <= this.maxAgeMilliseconds;
  }

  has(address: IpAddress): boolean {
    return this.#list.has(address);
  }

  /**
   * Puts these lists in force.
   * @returns whether that changes what is in force
   */
  async swap(lists: readonly SourceList[]): Promise<boolean> {
    const joined = lists.map(({ digest }) => digest).join();
    const changes = joined !== this.#joined;
    if (changes) this.#list = await TorExitList.join(lists.map(({ addresses }) => addresses));
    this.#joined = joined;
    this.#expiresSince = Math.max(-Infinity, ...lists.map(expiresSince));
    return changes;
  }
}
