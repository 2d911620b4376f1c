import { createHash } from 'node:crypto';
import type { Config } from './schema.js';

const mask = '***';

/**
 * Masks the parts of a URL that could be secret: user, password and query values. Does not change a text that is not a
 * URL.
 */
export function redact(text: string): string {
  if (!/^[a-z][a-z0-9+.-]*:/i.test(text)) return text;
  return text.replace(/:\/\/.*@/s, `://${mask}@`).replaceAll(/(?<=[?&][^=&#]*=)[^&#]*/g, mask);
}

/** Returns a configuration, or a part of one, for display: all its URLs are redacted. */
export function redactConfig(part: unknown): unknown {
  if (typeof part === 'string') return redact(part);
  if (Array.isArray(part)) return part.map(redactConfig);
  if (typeof part !== 'object' || part === null) return part;
  return Object.fromEntries(Object.entries(part).map(([name, entry]) => [name, redactConfig(entry)]));
}

const digits = 16;

/**
 * Returns the first 16 hex digits of a SHA-256 over the effective configuration with secrets masked. Replicas with
 * different digests have different configurations.
 */
export function configDigest(config: Config): string {
  const text = JSON.stringify(redactConfig(config), sorted);
  return createHash('sha256').update(text).digest('hex').slice(0, digits);
}

/** JSON.stringify replacer that sorts the names of each object, so that their order does not change the digest. */
function sorted(_name: string, value: unknown): unknown {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).toSorted(([one], [other]) => (one < other ? -1 : 1)));
}
