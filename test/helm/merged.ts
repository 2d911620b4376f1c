/** Deep merge of values: the second value overrides the first. */
export function merged(first: unknown, second: unknown): unknown {
  if (typeof first !== 'object' || typeof second !== 'object' || first === null || second === null) return second;
  if (Array.isArray(first) || Array.isArray(second)) return second;
  const keys = [...new Set([...Object.keys(first), ...Object.keys(second)])];
  const [one, other] = [first as Record<string, unknown>, second as Record<string, unknown>];
  return Object.fromEntries(keys.map((key) => [key, key in other ? merged(one[key], other[key]) : one[key]]));
}
