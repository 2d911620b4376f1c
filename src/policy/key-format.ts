/** The environment that a key belongs to, or that a gateway serves: production or the sandbox. */
export type Environment = 'live' | 'test';

/** What can be told of the `x-api-key` header without looking anything up. */
export type KeyFormat = 'absent' | 'malformed' | Environment;

/** The prefix of each environment's keys, case-sensitive (spec section 2.5). */
export const keyPrefixes: Readonly<Record<Environment, string>> = { live: 'svc_live_', test: 'svc_test_' };

/**
 * Reads the format of the key from every value of `x-api-key` in the request. Two headers are malformed even if they
 * agree: a proxy in front may have judged the other one.
 */
export function keyFormatOf(values: readonly string[]): KeyFormat {
  if (values.length > 1) return 'malformed';
  const key = values[0] ?? '';
  if (key === '') return 'absent';
  if (key.startsWith(keyPrefixes.live)) return 'live';
  if (key.startsWith(keyPrefixes.test)) return 'test';
  return 'malformed';
}
