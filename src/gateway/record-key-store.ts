import { follow } from './eventual.js';
import type { Eventual } from './eventual.js';
import { KeyStoreUnavailable } from './key-store.js';
import type { KeyLookup, KeyStore, RecordSource } from './key-store.js';
import { joinCredential } from './records.js';
import type { CompiledKey, CompiledMerchant, RecordProblem } from './records.js';

/** The result of reading one record. */
export interface RecordRead<Compiled> {
  /** Null if the record does not exist. */
  readonly record: Compiled | null;
  readonly source: RecordSource;
  readonly ageMilliseconds: number;
}

/**
 * Reads the records of keys and merchants from any kind of store. Reading either kind of record fails with
 * `KeyStoreUnavailable` during an outage.
 */
export interface Records {
  key(lookupId: string): Eventual<RecordRead<CompiledKey>>;
  merchant(merchantId: string): Eventual<RecordRead<CompiledMerchant>>;
  /** Whether the look-up result of this key is cached, or the store remembers that the key exists. */
  knowsKey(lookupId: string): boolean;
  /** Returns why the records are unavailable, for operators; null if they are available. */
  unavailableReason(): string | null;
  /** Returns why the gateway is not ready for traffic yet although look-ups work; null if it is ready. */
  startingReason?(): string | null;
  /** Returns statistics of the cache and of unusable records; null if the store holds all records in memory. */
  recordStats(): RecordStats | null;
  /** Closes the store. A second call waits for the first one. */
  close(): Promise<void>;
}

/** Statistics of a record store. */
export interface RecordStats extends CacheStats {
  /** How many reads found a record that cannot be used, by problem. */
  readonly refused: Readonly<Record<RecordProblem, number>>;
}

/** Statistics of a record cache: `known` for its cached records, `unknown` for its cached ids that have no record. */
export interface CacheStats {
  readonly known: CachePartStats;
  readonly unknown: CachePartStats;
  /** Null if the cache is not preloaded. */
  readonly preload: PreloadStats | null;
}

/** Progress of the preload, which fills the cache with records before requests need them. */
export interface PreloadStats {
  /** `full` means that the cache cannot hold every record. `refused` means that Redis denies the preload by its ACL. */
  readonly state: PreloadState;
  readonly keys: number;
  readonly merchants: number;
  /**
   * During a scan of the store, the number of keys of all environments that the scan has found so far. Between two
   * scans, the number that the last scan found.
   */
  readonly seen: number;
}

export const preloadStates = ['loading', 'complete', 'full', 'refused'] as const;
export type PreloadState = (typeof preloadStates)[number];

/** Statistics of one part of a cache: the existing records, or the ids that have no record. */
export interface CachePartStats {
  readonly entries: number;
  /** How many unexpired entries the cache has removed since the process started, because it was full. */
  readonly evictions: number;
}

const trust: readonly RecordSource[] = ['store', 'cache', 'stale'];

/** A key store on top of any `Records`. It joins the record of a key with the record of its merchant. */
export class RecordKeyStore implements KeyStore {
  readonly #records: Records;

  constructor(records: Records) {
    this.#records = records;
  }

  find(lookupId: string): Eventual<KeyLookup> {
    const reason = this.#records.unavailableReason();
    if (reason !== null) throw new KeyStoreUnavailable(reason);
    return follow(this.#records.key(lookupId), (key) => {
      const { record, source, ageMilliseconds } = key;
      if (record === null) return { credential: null, source, ageMilliseconds };
      return follow(this.#records.merchant(record.merchantId), (merchant) => join(record, key, merchant));
    });
  }

  knows(lookupId: string): boolean {
    return this.#records.knowsKey(lookupId);
  }

  unavailableReason(): string | null {
    return this.#records.unavailableReason();
  }

  startingReason(): string | null {
    return this.#records.startingReason?.() ?? null;
  }

  close(): Promise<void> {
    return this.#records.close();
  }
}

function join(record: CompiledKey, key: RecordRead<CompiledKey>, merchant: RecordRead<CompiledMerchant>): KeyLookup {
  const { merchantId } = record;
  if (merchant.record === null) throw new KeyStoreUnavailable(`the record of merchant ${merchantId} is missing`);
  if (merchant.record.merchantId !== merchantId) {
    throw new KeyStoreUnavailable(`the record of merchant ${merchantId} contains the id of another merchant`);
  }
  return {
    credential: joinCredential(record, merchant.record),
    // A credential consists of a key record and a merchant record, so it is only as fresh as the older record.
    source: trust.indexOf(key.source) > trust.indexOf(merchant.source) ? key.source : merchant.source,
    ageMilliseconds: Math.max(key.ageMilliseconds, merchant.ageMilliseconds),
  };
}
