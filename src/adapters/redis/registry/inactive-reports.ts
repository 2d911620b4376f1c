import type { InactiveReport } from '../../../gateway/store-ports.js';
import { readReport } from '../gateway-records.js';
import { isProof } from '../seal.js';
import type { Seals } from '../seal.js';

/**
 * Reads the gateways' reports of inactive records (keys and merchants whose status denies requests). Scans for reports
 * only after an invalidation message for a report, or when such messages may have been missed.
 */
export class InactiveReports {
  readonly #prefix: string;
  readonly #scan: (prefix: string) => AsyncIterable<string>;
  readonly #read: (name: string) => Promise<string | null>;
  readonly #seals: Seals;
  /**
   * A counter that grows with each invalidation message for a report, and whenever a message may have been missed.
   */
  #count = 1;
  #readUpTo = 0;

  /**
   * @param prefix the prefix of the Redis keys of reports
   * @param scan lists the Redis keys with this prefix; a key that is added during the scan can be absent
   * @param read returns the text of a report; null if it no longer exists
   * @param seals verifies the seals (HMACs) of reports
   */
  constructor(
    prefix: string,
    scan: (prefix: string) => AsyncIterable<string>,
    read: (name: string) => Promise<string | null>,
    seals: Seals,
  ) {
    [this.#prefix, this.#scan, this.#read, this.#seals] = [prefix, scan, read, seals];
  }

  /** Handles invalidation messages for these Redis keys. */
  noticed(names: readonly string[]): void {
    if (names.some((name) => name.startsWith(this.#prefix))) this.#count += 1;
  }

  /**
   * Marks reports as pending, so that the registry scans for them again. Must be called when reports may have been
   * written without an invalidation message.
   */
  missed(): void {
    this.#count += 1;
  }

  /** Whether gateways may have written reports that are not read yet. */
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
