import { parseDateTime } from '../rest/moment.js';
import { withPurpose } from '../rest/openapi/json-schema.js';
import { withCheck } from '../rest/validation.js';
import Type, { type Static, type TSchema } from '../typebox/typebox.js';
import { uuid } from './fields.js';

const millisecondsOfDay = 86_400_000;

const dateOrTime = withCheck(
  Type.String({
    pattern:
      /^[0-9]{4}-[0-9]{2}-[0-9]{2}(?:T[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,3})?)?(?:Z|[+-][0-9]{2}:[0-9]{2}))?$/,
    description: 'a date, such as 2026-01-31, or a date and time with its zone, such as 2026-01-31T12:00:00Z',
    examples: ['2026-01-31'],
  }),
  (text) => (parseDateTime(beginningOf(text)) === null ? 'a date that exists' : null),
);

/** Query parameters that filter records by creation time; both ends are inclusive. */
export const createdQuery = {
  from: Type.Optional(
    withPurpose(dateOrTime, 'Only records created at this time or later; a date means the start of that day in UTC'),
  ),
  to: Type.Optional(
    withPurpose(dateOrTime, 'Only records created at this time or earlier; a date means the end of that day in UTC'),
  ),
};

/** Query parameter that filters records by their wallet. */
export const walletFilter = withPurpose(uuid, 'Only records of this wallet; 404 if the merchant has no such wallet');

/**
 * Describes the query parameter `up_to`. With it, the list contains only the record with this id and older records, so
 * that new records do not shift the pages.
 */
export function upTo<Schema extends TSchema>(ids: Schema): Schema {
  return withPurpose(
    ids,
    'The id of the record at the top of page 1. Newer records are omitted, so that they do not shift the pages. 404 if the merchant never had the record',
  );
}

/** A range of creation times in milliseconds since 1970. Both ends are inclusive; null means unbounded. */
export interface CreatedRange {
  readonly from: number | null;
  readonly to: number | null;
}

/** Reads the range of creation times from a validated query. A date means that whole day in UTC. */
export function createdRangeOf({ from, to }: Partial<Record<'from' | 'to', Static<typeof dateOrTime>>>): CreatedRange {
  return { from: boundIn(from, 0), to: boundIn(to, millisecondsOfDay - 1) };
}

function boundIn(text: string | undefined, restOfDay: number): number | null {
  if (text === undefined) return null;
  return Date.parse(beginningOf(text)) + (isDay(text) ? restOfDay : 0);
}

function beginningOf(text: string): string {
  return isDay(text) ? `${text}T00:00:00Z` : text;
}

function isDay(text: string): boolean {
  return !text.includes('T');
}
