import { follow } from './eventual.js';
import type { Eventual } from './eventual.js';
import { KeyStoreUnavailable } from './ports.js';
import type { KeyLookup, KeyStore, RecordRead, Records, RecordSource } from './ports.js';
import { joinCredential } from './records.js';
import type { CompiledKey, CompiledMerchant } from './records.js';

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
  if (merchant.record === null) throw new KeyStoreUnavailable(`there is no record of merchant ${merchantId}`);
  if (merchant.record.merchantId !== merchantId) {
    throw new KeyStoreUnavailable(`the record of merchant ${merchantId} is another merchant's`);
  }
  return {
    credential: joinCredential(record, merchant.record),
    // A credential consists of two records, so it is only as fresh as the older one.
    source: trust.indexOf(key.source) > trust.indexOf(merchant.source) ? key.source : merchant.source,
    ageMilliseconds: Math.max(key.ageMilliseconds, merchant.ageMilliseconds),
  };
}
