import { createHmac } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import type { LogSecret } from './chain.js';

/**
 * Number of hex digits of a fingerprint. 32 digits (128 bits) are enough that no two keys have the same fingerprint,
 * and short enough for each log line.
 */
const fingerprintLength = 32;
const maxCached = 10_000;

/**
 * Identifies an API key in the log: the first 32 hex digits of its HMAC-SHA-256 with the log's secret. Null without a
 * secret, because a plain hash would reveal the look-up id under which the stores keep the key's record.
 */
export function keyFingerprint(secret: LogSecret, key: string): string | null {
  if (secret === null) return null;
  return createHmac('sha256', secret).update(key, 'latin1').digest('hex').slice(0, fingerprintLength);
}

/** Caches the fingerprints of recently used keys, so that a request hashes its key once instead of twice. */
export class KeyFingerprints {
  readonly #secret: LogSecret;
  /**
   * Maps look-up ids (hashes of keys in the stores) to fingerprints. Neither is secret, so the cache contains no key.
   * With the option `max` instead of `maxSize`, the cache would allocate all its memory at once.
   */
  readonly #known = new LRUCache<string, string>({ maxSize: maxCached, sizeCalculation: () => 1 });

  constructor(secret: LogSecret) {
    this.#secret = secret;
  }

  /**
   * Returns the fingerprint of a key; null if the log has no secret.
   * @param lookupId the look-up id: the hash under which the stores keep the record of this key
   */
  of(key: string, lookupId: string): string | null {
    const known = this.#known.get(lookupId);
    if (known !== undefined) return known;
    const fingerprint = keyFingerprint(this.#secret, key);
    if (fingerprint !== null) this.#known.set(lookupId, fingerprint);
    return fingerprint;
  }
}
