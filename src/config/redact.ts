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
