import type { CompiledKey, CompiledMerchant, KeyRecord, MerchantRecord } from '../../../gateway/records.js';
import { recordsOfReport } from '../gateway-records.js';
import type { InactiveReport } from '../gateway-records.js';
import type { RecordNames } from '../record-names.js';
import type { RecordsLink } from '../records-link.js';
import type { Seals } from '../seal.js';

/** What is remembered, and where it is reported. */
export interface InactiveMemoryOptions {
  readonly link: Pick<RecordsLink, 'write'>;
  readonly names: RecordNames;
  readonly instanceId: string;
  readonly seals: Seals;
  /** The records that are held, and may not be used or end some day. */
  readonly held: () => Iterable<InactiveReport['entries'][number]>;
}

/** The history in which records were held, and the newest change of it that was known. */
type Known = Pick<InactiveReport, 'generation' | 'revision'>;

/** How long a report stays in Redis. */
const reportMilliseconds = 86_400_000;
const mostRemembered = 100_000;

/**
 * Remembers which keys and merchants are inactive when the gateway drops what it holds, and reports them to the registry when the
 * store has lost changes: its database may have been restored from a backup, and nobody else may know of their revocation.
 */
export class InactiveMemory {
  readonly #options: InactiveMemoryOptions;
  readonly #records = new Map<string, object>();
  #known: Known | null = null;
  /** The epoch of the connections over which the whole report was written. */
  #writtenIn = NaN;

  constructor(options: InactiveMemoryOptions) {
    this.#options = options;
  }

  /** Copies what is held, before it is dropped. @param known null before the gateway has believed any store */
  remember(known: Known | null): void {
    if (known === null) return;
    for (const { name, value } of this.#options.held()) {
      if (this.#records.size >= mostRemembered && !this.#records.has(name)) break;
      this.#records.set(name, value);
      this.#writtenIn = NaN;
    }
    if (this.#records.size > 0) this.#known = { generation: known.generation, revision: known.revision };
  }

  /**
   * Writes the report, unless that was done over these connections. Never rejects: a server that takes no writes does not take the
   * registry's either, and the next call tries again.
   * @param epoch stands for the connections
   */
  async report(known: Known | null, epoch: number): Promise<void> {
    if (this.#writtenIn === epoch) return;
    this.remember(known);
    try {
      if (this.#known !== null) await this.#write(this.#known);
      this.#writtenIn = epoch;
    } catch {
      this.#writtenIn = NaN;
    }
  }

  /** Forgets, when the gateway is enrolled: nothing was lost, or the registry has read the report before it granted that. */
  clear(): void {
    if (this.#known === null) return;
    this.#records.clear();
    this.#known = null;
    this.#writtenIn = NaN;
  }

  async #write({ generation, revision }: Known): Promise<void> {
    const { link, names, instanceId, seals } = this.#options;
    const entries = Array.from(this.#records, ([name, value]) => ({ name, value }));
    for (let start = 0, part = 0; start < entries.length; start += recordsOfReport, part += 1) {
      const some = entries.slice(start, start + recordsOfReport);
      const report: InactiveReport = { instanceId, generation, revision, entries: some };
      const name = names.inactive(instanceId, part);
      const text = seals.seal(name, JSON.stringify(report));
      await link.write({ name, text, lifetimeMilliseconds: reportMilliseconds });
    }
  }
}

/**
 * Of records by their ids, those that are inactive or end some day, as they are stored. Their lists are left out: the registry
 * looks at nothing but what ends them.
 */
export function* inactiveAmong(
  keys: Iterable<readonly [lookupId: string, key: CompiledKey]>,
  merchants: Iterable<readonly [merchantId: string, merchant: CompiledMerchant]>,
): Generator<InactiveReport['entries'][number]> {
  for (const [id, { keyId, merchantId, environment, keyStatus: status, expiresAt, revision }] of keys) {
    if (status === 'ACTIVE' && expiresAt === null) continue;
    const ends = expiresAt === null ? null : new Date(expiresAt).toISOString();
    const value: KeyRecord = { keyId, merchantId, environment, status, permissions: [], expiresAt: ends, revision };
    yield { name: `key:${id}`, value };
  }
  for (const [merchantId, { merchantStatus: status, goLive, revision }] of merchants) {
    if (status === 'ACTIVE' && goLive) continue;
    const lists = { ipAllowlist: null, originAllowlist: null };
    const value: MerchantRecord = { merchantId, name: '', status, goLive, ...lists, revision };
    yield { name: `merchant:${merchantId}`, value };
  }
}
