import type { ChainCheck } from './chain-check.js';

const mostChains = 100_000;

/**
 * The hash chains of a log, in bounded memory. An attacker can insert any number of chains, so unsigned chains are
 * evicted: first those without a verified line, then the oldest. Signed chains need no limit: there is at most one for
 * each checkpoint that the user passed.
 */
export class KnownChains<Chain extends Pick<ChainCheck, 'id' | 'proved'>> {
  readonly #all = new Map<string, Chain>();
  readonly #unsigned = new Map<string, Chain>();
  /**
   * Unsigned chains in the order in which they began. An eviction skips and removes chains that have a verified line by
   * now.
   */
  readonly #unproved: Chain[] = [];

  get(id: string): Chain | undefined {
    return this.#all.get(id);
  }

  has(id: string): boolean {
    return this.#all.has(id);
  }

  values(): IterableIterator<Chain> {
    return this.#all.values();
  }

  /** Adds a chain. @returns the chain that the caller must evict with `evict` to make room; null if there is room */
  add(chain: Chain, isSigned: boolean): Chain | null {
    const evicted = !isSigned && this.#unsigned.size >= mostChains ? this.#first() : null;
    this.#all.set(chain.id, chain);
    if (isSigned) return null;
    this.#unsigned.set(chain.id, chain);
    this.#unproved.push(chain);
    return evicted;
  }

  /** Removes a chain. The caller must report the findings (defects) of this chain first. */
  evict({ id }: Chain): void {
    for (const chains of [this.#all, this.#unsigned]) chains.delete(id);
  }

  #first(): Chain | null {
    const unproved = this.#unproved.splice(0, 1 + this.#unproved.findIndex(({ proved }) => proved === 0)).at(-1);
    return unproved ?? this.#unsigned.values().next().value ?? null;
  }
}
