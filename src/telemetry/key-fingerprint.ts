import { createHmac } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import type { LogSecret } from './chain.js';

/**
 * Number of hex digits of a fingerprint. With 32 digits (128 bits), no two keys have the same fingerprint in practice,
 * and each log line stays short.
 */
const fingerprintLength = 32;
const maxCached = 10_000;

/**
 * Returns the text that identifies an API key in the log: the first 32 hex digits of the key's HMAC-SHA-256 with the
 * log's secret. Returns null if the log has no secret. A plain hash is no alternative, because it would reveal the
 * look-up id under which the stores keep the key's record.
 */
export function keyFingerprint(secret: LogSecret, key: string): string | null {
  if (secret === null) return null;
  return createHmac('sha256', secret).update(key, 'latin1').digest('hex').slice(0, fingerprintLength);
}

/** Caches the fingerprints of recently used keys, so that a request hashes its key once instead of twice. */
export class KeyFingerprints {
  readonly #secret: LogSecret;
  /**
   * Maps the look-up id of a key, which is a hash, to the key's fingerprint. So the cache contains no key.
   * With the option `max` instead of `maxSize`, the cache would allocate all its memory at once.
   */
  readonly #known = new LRUCache<string, string>({ maxSize: maxCached, sizeCalculation: () => 1 });

  constructor(secret: LogSecret) {
    this.#secret = secret;
  }

  /**
   * Returns the fingerprint of a key; null if the log has no secret.
   * @param lookupId the hash under which the stores keep the record of this key
   */
  of(key: string, lookupId: string): string | null {
    const known = this.#known.get(lookupId);
    if (known !== undefined) return known;
    const fingerprint = keyFingerprint(this.#secret, key);
    if (fingerprint !== null) this.#known.set(lookupId, fingerprint);
    return fingerprint;
  }
}
