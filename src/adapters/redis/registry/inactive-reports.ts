import type { InactiveReport } from '../../../gateway/store-ports.js';
import { readReport } from '../gateway-records.js';
import { isProof } from '../seal.js';
import type { Seals } from '../seal.js';

/** What gateways report as inactive. They are looked for only after a notice of one, or when a notice may have been missed. */
export class InactiveReports {
  readonly #prefix: string;
  readonly #scan: (prefix: string) => AsyncIterable<string>;
  readonly #read: (name: string) => Promise<string | null>;
  readonly #seals: Seals;
  /** Raised by each notice of a report, and each time that a notice may have been missed. */
  #count = 1;
  #readUpTo = 0;

  /**
   * @param prefix what the name of every report begins with
   * @param scan the names that begin so; one that comes meanwhile may be left out
   * @param read the text of one; null where it is gone
   * @param seals what reports are sealed with by gateways that have the secret
   */
  constructor(
    prefix: string,
    scan: (prefix: string) => AsyncIterable<string>,
    read: (name: string) => Promise<string | null>,
    seals: Seals,
  ) {
    [this.#prefix, this.#scan, this.#read, this.#seals] = [prefix, scan, read, seals];
  }

  /** Notices came of these names. */
  noticed(names: readonly string[]): void {
    if (names.some((name) => name.startsWith(this.#prefix))) this.#count += 1;
  }

  /** Some may have been written without a notice. */
  missed(): void {
    this.#count += 1;
  }

  /** Whether there may be some that were not read. */
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
