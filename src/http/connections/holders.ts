import { LinkedList } from './linked-list.js';
import type { Links } from './linked-list.js';

/** A merchant, and the open connections whose last accepted request was its own. */
export interface Holder<Connection extends Links<Connection>> {
  readonly merchantId: string;
  /** How many are open. */
  open: number;
  /** Those without an accepted request in flight; the one that is idle for longest stands first. */
  readonly idle: LinkedList<Connection>;
}

/** The merchants of a listener's connections, and which of them holds more than half of all. Each step takes constant time. */
export class Holders<Connection extends Links<Connection>> {
  readonly #all: number;
  readonly #byMerchant = new Map<string, Holder<Connection>>();
  /** Nobody else can hold more than half. */
  #most: Holder<Connection> | null = null;

  /** @param all how many connections the listener may have */
  constructor(all: number) {
    this.#all = all;
  }

  /** The connection that is idle for longest, of a merchant with more than half of all; null where there is none. */
  get longestIdleOfMost(): Connection | null {
    return this.#most?.idle.first ?? null;
  }

  /** Counts a connection for the merchant whom it serves from now on. */
  add(merchantId: string): Holder<Connection> {
    let holder = this.#byMerchant.get(merchantId);
    if (holder === undefined) {
      holder = { merchantId, open: 0, idle: new LinkedList() };
      this.#byMerchant.set(merchantId, holder);
    }
    holder.open += 1;
    if (this.#hasMost(holder)) this.#most = holder;
    return holder;
  }

  /** Says that a connection is closed, or serves another merchant from now on. */
  remove(holder: Holder<Connection>): void {
    holder.open -= 1;
    if (holder.open === 0) this.#byMerchant.delete(holder.merchantId);
    if (this.#most === holder && !this.#hasMost(holder)) this.#most = null;
  }

  #hasMost({ open }: Holder<Connection>): boolean {
    return open * 2 > this.#all;
  }
}
