import { createHash } from 'node:crypto';

/**
 * Returns a text that identifies a request: the hex SHA-256 of its route and of its body as JSON with sorted fields.
 */
export function requestFingerprint(route: string, body: unknown): string {
  return createHash('sha256')
    .update(`${route}\n${canonicalJson(body)}`)
    .digest('hex');
}

/**
 * Serializes JSON with sorted fields and without nulls: a retry can order its fields differently, or send null for a
 * field that the first request omitted.
 */
function canonicalJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join()}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  const given = Object.entries(value).filter(([, field]) => field !== null);
  const fields = given.toSorted(([one], [other]) => (one < other ? -1 : 1));
  return `{${fields.map(([name, field]) => `${JSON.stringify(name)}:${canonicalJson(field)}`).join()}}`;
}
