/** The environment that a key or a gateway belongs to: production (`live`) or the sandbox (`test`). */
export type Environment = 'live' | 'test';

/** What the `x-api-key` header contains, judged only by the prefix of the key. */
export type KeyFormat = 'absent' | 'malformed' | Environment;

/** The key prefix of each environment, case-sensitive (spec section 2.5). */
export const keyPrefixes: Readonly<Record<Environment, string>> = { live: 'svc_live_', test: 'svc_test_' };

/**
 * Classifies the values of all `x-api-key` headers of a request. Several headers count as malformed, even with equal
 * values. Otherwise a proxy in front of the gateway could check one of these headers, and the gateway another.
 */
export function keyFormatOf(values: readonly string[]): KeyFormat {
  if (values.length > 1) return 'malformed';
  const key = values[0] ?? '';
  if (key === '') return 'absent';
  if (key.startsWith(keyPrefixes.live)) return 'live';
  if (key.startsWith(keyPrefixes.test)) return 'test';
  return 'malformed';
}
