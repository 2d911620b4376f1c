import type { Credential } from '../policy/facts.js';
import { KeyStoreUnavailable } from './ports.js';
import type { KeyAnswer, KeyStore, Records, RecordSource } from './ports.js';
import { joinCredential } from './records.js';
import type { CompiledKey, CompiledMerchant } from './records.js';

const trust: readonly RecordSource[] = ['store', 'cache', 'stale'];

/** The key store over any place of records: joins a key and its merchant. */
export class RecordKeyStore implements KeyStore {
  readonly #records: Records;

  constructor(records: Records) {
    this.#records = records;
  }

  async find(lookupId: string): Promise<KeyAnswer> {
    const reason = this.unavailableReason();
    if (reason !== null) throw new KeyStoreUnavailable(reason);
    const key = await this.#records.key(lookupId);
    if (key.record === null) return { credential: null, source: key.source, ageMilliseconds: key.ageMilliseconds };
    const merchant = await this.#records.merchant(key.record.merchantId);
    if (merchant.record === null) {
      throw new KeyStoreUnavailable(`there is no record of merchant ${key.record.merchantId}`);
    }
    return {
      credential: joinOrFail(key.record, merchant.record),
      // A credential is as true as the less certain of its halves.
      source: trust.indexOf(key.source) > trust.indexOf(merchant.source) ? key.source : merchant.source,
      ageMilliseconds: Math.max(key.ageMilliseconds, merchant.ageMilliseconds),
    };
  }

  unavailableReason(): string | null {
    return this.#records.unavailableReason();
  }

  close(): Promise<void> {
    return this.#records.close();
  }
}

function joinOrFail(key: CompiledKey, merchant: CompiledMerchant): Credential {
  if (key.merchantId !== merchant.merchantId) {
    throw new KeyStoreUnavailable(`the record of merchant ${key.merchantId} is another merchant's`);
  }
  return joinCredential(key, merchant);
}
