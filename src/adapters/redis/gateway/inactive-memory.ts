import type { CompiledKey, CompiledMerchant, KeyRecord, MerchantRecord } from '../../../gateway/records.js';
import { recordsOfReport } from '../gateway-records.js';
import type { InactiveReport } from '../gateway-records.js';
import type { RecordNames } from '../record-names.js';
import type { RecordsLink } from '../records-link.js';
import type { Seals } from '../seal.js';

/** Options of `InactiveMemory`. A record is inactive if its status denies requests. */
export interface InactiveMemoryOptions {
  readonly link: Pick<RecordsLink, 'write'>;
  readonly names: RecordNames;
  readonly instanceId: string;
  readonly seals: Seals;
  /** Returns the cached keys that are inactive or have an expiry, and the merchants that are inactive or not live. */
  readonly held: () => Iterable<InactiveReport['entries'][number]>;
}

/**
 * The generation in which the records were cached, and the newest revision that the gateway knew. A generation is one
 * unbroken history of changes.
 */
type Known = Pick<InactiveReport, 'generation' | 'revision'>;

/** Lifetime of a report in Redis. */
const reportMilliseconds = 86_400_000;
const mostRemembered = 100_000;

/**
 * Remembers inactive keys and merchants when the gateway drops its cache, and reports them to the registry if the store
 * may have lost changes. After a restore of the database from a backup, the gateway may be the only process that knows
 * of a revocation.
 */
export class InactiveMemory {
  readonly #options: InactiveMemoryOptions;
  readonly #records = new Map<string, object>();
  #known: Known | null = null;
  /**
   * The epoch of the connections over which the whole report was written. The epoch changes with each reconnect. NaN:
   * the report must be written again.
   */
  #writtenIn = NaN;

  constructor(options: InactiveMemoryOptions) {
    this.#options = options;
  }

  /**
   * Copies the inactive records from the cache before the cache is dropped.
   * @param known the state of the store that a heartbeat last trusted; null if no heartbeat has trusted it yet
   */
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
   * Writes the report of inactive keys and merchants once after each reconnect. Never rejects: the next call retries a
   * failed write. This delay is harmless: a server that refuses this write refuses the registry's writes too, so the
   * registry confirms no change meanwhile.
   * @param epoch a number that changes with each reconnect
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

  /**
   * Deletes the remembered records. Must be called after the registry has enrolled the gateway, that is, allows it to
   * cache records. At that time, either the store has lost nothing, or the registry has read the report.
   */
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
 * Selects the keys that are inactive or have an expiry, and the merchants that are inactive or not live. Returns them
 * in the form for reports, without permissions and allowlists: the registry uses only the fields that make a record
 * inactive.
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
