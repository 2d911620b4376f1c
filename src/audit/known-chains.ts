import type { ChainCheck } from './chain-check.js';
import { counted, type Finding } from './finding.js';

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
   * Unsigned chains in the order in which they began. An eviction takes the first chain without a verified line. It
   * also removes all earlier chains from this list, because each of them now has a verified line.
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

/**
 * Returns hints for findings that a mistake on the command line could have caused: a wrong or omitted secret, or a
 * wrong order of the files.
 * @param hasSecret whether a secret was given
 */
export function hintsOf(findings: readonly Finding[], chains: readonly ChainCheck[], hasSecret: boolean): string[] {
  const isLate = findings.some(({ kind }) => kind === 'repeated' || kind === 'reordered');
  return [
    ...secretHint(chains, hasSecret),
    ...(isLate ? ['some lines are repeated or out of order: pass each file once, oldest first'] : []),
  ];
}

/**
 * Returns a hint that the secret could be wrong or omitted; empty if nothing suggests this. With a wrong secret, every
 * line of a chain seems edited. So the function looks for a chain in which no hash is correct and several lines seem
 * edited. If no chain has a correct hash, one line that seems edited suffices. If no secret was given, the function
 * ignores chains whose lines state how they are hashed.
 */
function secretHint(chains: readonly ChainCheck[], hasSecret: boolean): string[] {
  const isProvedAnywhere = chains.some(({ proved }) => proved > 0);
  const [first, ...more] = chains.filter(
    ({ proved, edited, hasUnknownHash }) =>
      proved === 0 && edited > (isProvedAnywhere ? 1 : 0) && (hasSecret || hasUnknownHash),
  );
  if (first === undefined) return [];
  if (!isProvedAnywhere)
    return [
      hasSecret
        ? 'no line could be verified: check the secret'
        : 'no line could be verified without a secret: if the log is hashed with one, name the secret file with --secret-file or --config; otherwise the lines were changed',
    ];
  const which = `the chain ${first.id}${more.length === 0 ? '' : ` and of ${counted(more.length, 'more chain')}`}`;
  return [
    `no line of ${which} could be verified: if an earlier secret was in use, add its file with another --secret-file`,
  ];
}
