import { createHmac } from 'node:crypto';
import type { LogSecret } from './chain.js';

/** 128 bits: two keys do not share one, and a line stays short. */
const fingerprintLength = 32;

/**
 * What the log says in place of a key: the first 32 hex digits of its HMAC-SHA-256 under the log's secret. Without a
 * secret there is none: a plain hash is the name under which stores hold the key's record.
 */
export function keyFingerprint(secret: LogSecret, key: string): string | null {
  if (secret === null) return null;
  return createHmac('sha256', secret).update(key).digest('hex').slice(0, fingerprintLength);
}
