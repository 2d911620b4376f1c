import { createHash } from 'node:crypto';
import { redactConfig } from './redact.js';
import type { Config } from './schema.js';

const digits = 16;

/**
 * Stands for the effective configuration, secrets masked: the beginning of its SHA-256, in hex. Replicas that differ in it have
 * different configurations.
 */
export function configDigest(config: Config): string {
  const text = JSON.stringify(redactConfig(config), sorted);
  return createHash('sha256').update(text).digest('hex').slice(0, digits);
}

/** The same configuration in another order is the same. */
function sorted(_name: string, value: unknown): unknown {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).toSorted(([one], [other]) => (one < other ? -1 : 1)));
}
