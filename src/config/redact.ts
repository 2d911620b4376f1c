import { createHash } from 'node:crypto';
import type { Config } from './schema.js';

const mask = '***';

/** A text with what could be secret in a URL masked: user and password, and the values of a query. */
export function redact(text: string): string {
  if (!/^[a-z][a-z0-9+.-]*:/i.test(text)) return text;
  return text.replace(/:\/\/.*@/s, `://${mask}@`).replaceAll(/(?<=[?&][^=&#]*=)[^&#]*/g, mask);
}

/** A configuration for the eyes of an operator. */
export function redactConfig(config: Config): unknown {
  return redactAll(config);
}

function redactAll(value: unknown): unknown {
  if (typeof value === 'string') return redact(value);
  if (Array.isArray(value)) return value.map(redactAll);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, entry]) => [name, redactAll(entry)]));
}

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
