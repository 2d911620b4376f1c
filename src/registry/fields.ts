import { keyPrefixes } from '../policy/key-format.js';
import type { Problem } from '../rest/envelope.js';
import { noKeyIn } from '../rest/line.js';
import { parseDateTime } from '../rest/moment.js';
import { Refusal } from '../rest/refusal.js';
import { type RawBuilder, sql } from '../database/kysely.js';
import Type from '../typebox/typebox.js';

/**
 * The format of merchant and key ids. An API key has this format too, so texts that contain one are excluded: events
 * store ids that clients send, for example in the filter of an export.
 */
export const identifierForm = new RegExp(`${noKeyIn}[A-Za-z0-9_-]{1,64}$`);

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
 * it never stores or repeats a key. Imports are checked too: they must contain the hash of each key, not the key.
 */
export function holdsApiKey(text: string): boolean {
  return prefixes.test(text);
}

/** The message for a line or field that contains the prefix of an API key. */
export const holdsApiKeyMessage =
  'contains what looks like an API key. Give the hash of the key as lookupId, never the key itself';

/**
 * The time of the last status change of a key or merchant. Null if the registry does not know this time. The field is
 * optional, because a registry of the previous release does not send it.
 */
export const statusTime = Type.Optional(Type.Union([Type.Null(), Type.String({ format: 'date-time' })]));

/** Returns the time of the last status change, as ISO 8601; null if the time is unknown. */
export function statusTimeOf({ status_changed_at: at }: { readonly status_changed_at: number | null }): string | null {
  return at === null ? null : new Date(at).toISOString();
}

/** Parses the list in a column with JSON; null for null. */
export function listIn(text: string | null): string[] | null {
  return text === null ? null : (JSON.parse(text) as string[]);
}

/** Parses the object in a column with JSON; null for null. */
export function objectIn(text: string | null): Record<string, unknown> | null {
  return text === null ? null : (JSON.parse(text) as Record<string, unknown>);
}

/** Beginning and end of a period, as clients send them. */
export interface GivenPeriod {
  readonly since?: string | undefined;
  readonly until?: string | undefined;
}

/**
 * Parses the beginning and end of a period, in milliseconds since 1970. A bound that the client did not send is
 * undefined. Adds a problem for a time that does not exist, and for an end that is not later than the beginning.
 */
export function timesIn({ since, until }: GivenPeriod, problems: Problem[]) {
  const momentIn = (path: string, text: string | undefined): number | undefined => {
    const at = text === undefined ? undefined : parseDateTime(text);
    if (at === null) problems.push({ path, message: `${path} must be a date and time that exists` });
    return at ?? undefined;
  };
  const times = { since: momentIn('since', since), until: momentIn('until', until) };
  if (times.since !== undefined && times.until !== undefined && times.since >= times.until)
    problems.push({ path: 'until', message: 'until must be later than since' });
  return times;
}

/** Returns the SQL condition that a column contains this text. The comparison ignores case. */
export function hasPart(column: string, text: string): RawBuilder<boolean> {
  const pattern = `%${text.replaceAll(/[\\%_]/g, '\\$&')}%`;
  return sql<boolean>`lower(${sql.ref(column)}) like lower(${pattern}) escape '\\'`;
}
