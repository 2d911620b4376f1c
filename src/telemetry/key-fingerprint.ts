import { createHmac } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import type { LogSecret } from './chain.js';

/** 128 bits: two keys never share a fingerprint, and lines stay short. */
const fingerprintLength = 32;
const maxCached = 10_000;

/**
 * Identifies a key in the log: the first 32 hex digits of its HMAC-SHA-256 under the log's secret. Null without a
 * secret: a plain hash is the name of the key's record in the stores.
 */
export function keyFingerprint(secret: LogSecret, key: string): string | null {
  if (secret === null) return null;
  return createHmac('sha256', secret).update(key, 'latin1').digest('hex').slice(0, fingerprintLength);
}

/** Fingerprints of the keys seen last, so that a request hashes its key once and not twice. */
export class KeyFingerprints {
  readonly #secret: LogSecret;
  /**
   * By lookup id: neither it nor a fingerprint is a secret, unlike a key. With `max` the cache would allocate all its
   * memory at once.
   */
  readonly #known = new LRUCache<string, string>({ maxSize: maxCached, sizeCalculation: () => 1 });

  constructor(secret: LogSecret) {
    this.#secret = secret;
  }

  /** The fingerprint of a key with this lookup id; null without a secret. */
  of(key: string, lookupId: string): string | null {
    const known = this.#known.get(lookupId);
    if (known !== undefined) return known;
    const fingerprint = keyFingerprint(this.#secret, key);
    if (fingerprint !== null) this.#known.set(lookupId, fingerprint);
    return fingerprint;
  }
}
