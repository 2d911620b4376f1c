import { createHmac } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import type { LogSecret } from './chain.js';

/** 128 bits: two keys do not share one, and a line stays short. */
const fingerprintLength = 32;
const mostKnown = 10_000;

/**
 * What the log says in place of a key: the first 32 hex digits of its HMAC-SHA-256 under the log's secret. Without a
 * secret there is none: a plain hash is the name under which stores hold the key's record.
 */
export function keyFingerprint(secret: LogSecret, key: string): string | null {
  if (secret === null) return null;
  return createHmac('sha256', secret).update(key, 'latin1').digest('hex').slice(0, fingerprintLength);
}

/** The fingerprints of the keys that were seen last, so that a request costs one hash of its key and not two. */
export class KeyFingerprints {
  readonly #secret: LogSecret;
  /** By look-up id: neither it nor a fingerprint is a secret, as a key would be. With `max` it would take all memory at once. */
  readonly #known = new LRUCache<string, string>({ maxSize: mostKnown, sizeCalculation: () => 1 });

  constructor(secret: LogSecret) {
    this.#secret = secret;
  }

  /** The fingerprint of a key, of which the look-up id is known; null without a secret. */
  of(key: string, lookupId: string): string | null {
    const known = this.#known.get(lookupId);
    if (known !== undefined) return known;
    const fingerprint = keyFingerprint(this.#secret, key);
    if (fingerprint !== null) this.#known.set(lookupId, fingerprint);
    return fingerprint;
  }
}
