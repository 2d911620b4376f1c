import type { InactiveReport } from '../../../gateway/store-ports.js';
import { readReport } from '../gateway-records.js';
import { isProof } from '../seal.js';
import type { Seals } from '../seal.js';

/**
 * Gateways' reports of inactive records. Scans for reports only after a notice of one, or after notices may have been
 * missed.
 */
export class InactiveReports {
  readonly #prefix: string;
  readonly #scan: (prefix: string) => AsyncIterable<string>;
  readonly #read: (name: string) => Promise<string | null>;
  readonly #seals: Seals;
  /** Raised by each notice of a report, and each time that notices may have been missed. */
  #count = 1;
  #readUpTo = 0;

  /**
   * @param prefix of every report's name
   * @param scan the names with this prefix; a name added during the scan may be absent
   * @param read the text of one; null if it no longer exists
   * @param seals verifies which reports come from a gateway with the secret
   */
  constructor(
    prefix: string,
    scan: (prefix: string) => AsyncIterable<string>,
    read: (name: string) => Promise<string | null>,
    seals: Seals,
  ) {
    [this.#prefix, this.#scan, this.#read, this.#seals] = [prefix, scan, read, seals];
  }

  /** Handles notices of these names. */
  noticed(names: readonly string[]): void {
    if (names.some((name) => name.startsWith(this.#prefix))) this.#count += 1;
  }

  /** Reports may have been written without a notice. */
  missed(): void {
    this.#count += 1;
  }

  /** Whether unread reports may exist. */
  get isPending(): boolean {
    return this.#readUpTo < this.#count;
  }

  async *all(): AsyncGenerator<InactiveReport> {
    const count = this.#count;
    for await (const name of this.#scan(this.#prefix)) {
      const text = await this.#read(name);
      const report = readReport(text);
      if (report === null || text === null) continue;
      const { instanceId, generation, revision, entries } = report;
      yield { name, instanceId, generation, revision, entries, isSealed: isProof(this.#seals.stateOf(name, text)) };
    }
    this.#readUpTo = count;
  }
}
