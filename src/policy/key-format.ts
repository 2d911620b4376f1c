/** The environment of a key or a gateway: production or the sandbox. */
export type Environment = 'live' | 'test';

/** Classification of the `x-api-key` header without a look-up. */
export type KeyFormat = 'absent' | 'malformed' | Environment;

/** Key prefix of each environment, case-sensitive (spec section 2.5). */
export const keyPrefixes: Readonly<Record<Environment, string>> = { live: 'svc_live_', test: 'svc_test_' };

/**
 * Classifies all values of `x-api-key` in the request. Two headers are malformed even if equal: a proxy in front may
 * have checked the other one.
 */
export function keyFormatOf(values: readonly string[]): KeyFormat {
  if (values.length > 1) return 'malformed';
  const key = values[0] ?? '';
  if (key === '') return 'absent';
  if (key.startsWith(keyPrefixes.live)) return 'live';
  if (key.startsWith(keyPrefixes.test)) return 'test';
  return 'malformed';
}
