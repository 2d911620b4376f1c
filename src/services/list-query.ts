import type { Problem } from '../rest/envelope.js';
import { momentIn } from '../rest/moment.js';
import { withPurpose } from '../rest/openapi/json-schema.js';
import { Refusal } from '../rest/refusal.js';
import Type, { type Static, type TSchema } from '../typebox/typebox.js';
import { uuid } from './fields.js';

const millisecondsOfDay = 86_400_000;

const when = Type.String({
  pattern:
    /^[0-9]{4}-[0-9]{2}-[0-9]{2}(?:T[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,3})?)?(?:Z|[+-][0-9]{2}:[0-9]{2}))?$/,
  description: 'a date, such as 2026-01-31, or a date and time with its zone, such as 2026-01-31T12:00:00Z',
  examples: ['2026-01-31'],
});

/** The parameters that choose records by the moment at which they were made; both ends belong to it. */
export const createdQuery = {
  from: Type.Optional(
    withPurpose(when, 'Only what was made then or later; a date is the beginning of that day in UTC'),
  ),
  to: Type.Optional(withPurpose(when, 'Only what was made then or before; a date is the end of that day in UTC')),
};

/** The parameter that chooses records by their wallet. */
export const ofWallet = withPurpose(uuid, 'Only what is of this wallet; 404 where the merchant does not have it');

/**
 * The parameter by which a list is read page by page while records are added to it: only the record that it names and
 * those made before it, so that what comes later moves nothing from one page to the next.
 */
export function upTo<Schema extends TSchema>(ids: Schema): Schema {
  return withPurpose(
    ids,
    'The id of the first record of page 1, to end the list there: what is added later moves nothing from page to page. 404 where the merchant never had it',
  );
}

/** The first and the last moment, in milliseconds since 1970. */
export interface CreatedRange {
  readonly from: number | null;
  readonly to: number | null;
}

/**
 * Reads from when to when records are asked for. A date is that day in UTC, the whole of it.
 * @throws Refusal for a day that no calendar has
 */
export function createdRangeOf({ from, to }: Partial<Record<'from' | 'to', Static<typeof when>>>): CreatedRange {
  return { from: edgeIn('from', from, 0), to: edgeIn('to', to, millisecondsOfDay - 1) };
}

function edgeIn(path: string, text: string | undefined, restOfDay: number): number | null {
  if (text === undefined) return null;
  const isDay = !text.includes('T');
  const edge = momentIn(isDay ? `${text}T00:00:00Z` : text);
  const problem: Problem = { path, message: `${path} must be a date that there is` };
  if (edge === null) throw Refusal.invalid([problem]);
  return isDay ? edge + restOfDay : edge;
}
