import { keyPrefixes } from '../policy/key-format.js';
import { Refusal } from '../rest/refusal.js';
import { type RawBuilder, sql } from '../database/kysely.js';
import Type from '../typebox/typebox.js';

/** The format of merchant and key ids. */
export const identifierForm = /^[A-Za-z0-9_-]{1,64}$/;

/**
 * Returns the id in a path. The response to an invalid id is the same as to an unknown id (404).
 * @param what the noun in the error message, such as `Key`
 * @throws Refusal
 */
export function idIn({ id }: { readonly id: string }, what: string): string {
  if (!identifierForm.test(id)) throw Refusal.notFound(what);
  return id;
}

const prefixes = new RegExp(Object.values(keyPrefixes).join('|'), 'i');

/**
 * Whether a text contains the prefix of an API key, in upper or lower case. The registry rejects such a text, so that
 * it never stores or repeats a key. This also applies to imports, which contain the hash of each key instead.
 */
export function holdsApiKey(text: string): boolean {
  return prefixes.test(text);
}

/** The message for a line or field that contains the prefix of an API key. */
export const holdsApiKeyMessage =
  'contains what looks like an API key: give the hash of the key as lookupId, never the key itself';

/**
 * The field for the time of the last status change of a key or merchant; null if unknown. It is optional, because a
 * registry of the previous release does not send it.
 */
export const statusTime = Type.Optional(Type.Union([Type.Null(), Type.String({ format: 'date-time' })]));

/** Returns the time of the last status change, as ISO 8601. */
export function statusTimeOf({ status_changed_at: at }: { readonly status_changed_at: number | null }): string | null {
  return at === null ? null : new Date(at).toISOString();
}

/** Returns the SQL condition that a column contains this text. The comparison ignores case. */
export function hasPart(column: string, text: string): RawBuilder<boolean> {
  const pattern = `%${text.replaceAll(/[\\%_]/g, '\\$&')}%`;
  return sql<boolean>`lower(${sql.ref(column)}) like lower(${pattern}) escape '\\'`;
}
