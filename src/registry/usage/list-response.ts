import type { FastifyReply } from 'fastify';
import { type Problem, successPage } from '../../rest/envelope.js';
import { type Page, type Paging, pagingOf } from '../../rest/paging.js';
import { Refusal } from '../../rest/refusal.js';
import type { TObject } from '../../typebox/typebox.js';
import { dayMilliseconds } from '../../usage/batch.js';
import { type GivenPeriod, timesIn } from '../fields.js';

/** Maximum number of rows of a list in CSV format. */
const mostCsvRows = 10_000;
const defaultDays = 7;

/** A period from `since`, inclusive, to `until`, exclusive, in milliseconds since 1970. */
export interface Period {
  readonly since: number;
  readonly until: number;
}

/**
 * Parses the beginning and end of a period, in milliseconds since 1970. A bound that the client did not send is
 * undefined.
 * @throws Refusal 422 for a time that does not exist, and for an end that is not later than the beginning
 */
export function givenTimes(given: GivenPeriod) {
  const problems: Problem[] = [];
  const times = timesIn(given, problems);
  const [first, ...others] = problems;
  if (first !== undefined) throw Refusal.invalid([first, ...others]);
  return times;
}

/**
 * Returns the period of a query, extended to whole hours or days. Without `until`, the period ends now; without
 * `since`, it begins 7 days before its end.
 * @param unit milliseconds of an hour or a day
 * @throws Refusal 422
 */
export function periodOf(given: GivenPeriod, now: number, unit: number): Period {
  const times = givenTimes(given);
  const until = Math.ceil((times.until ?? Math.max(now, times.since ?? 0) + 1) / unit) * unit;
  return { since: Math.floor((times.since ?? until - defaultDays * dayMilliseconds) / unit) * unit, until };
}

/** The query of a list that is also available as CSV. */
type ListQuery = Parameters<typeof pagingOf>[0] & { readonly format?: string };

/**
 * Responds with a page of a list, or with the whole list as CSV.
 * @throws Refusal 422 for a page number with CSV, and for a list that is too long for CSV
 */
export async function respondWithList<Item extends object>(
  reply: FastifyReply,
  { query, message, schema }: { readonly query: ListQuery; readonly message: string; readonly schema: TObject },
  read: (paging: Paging) => Promise<Page<Item>>,
) {
  if (query.format !== 'csv') {
    const paging = pagingOf(query);
    return successPage(message, await read(paging), paging);
  }
  const [page] = (['page', 'per_page'] as const).filter((name) => query[name] !== undefined);
  if (page !== undefined) throw Refusal.invalid([{ path: page, message: `${page} cannot be used with format=csv` }]);
  const { items, totalRecords } = await read({ page: 1, perPage: mostCsvRows });
  if (totalRecords > mostCsvRows) {
    const shorter = `the list has ${totalRecords} rows, but CSV has at most ${mostCsvRows}: shorten the list with filters, or with since and until`;
    throw Refusal.invalid([{ path: 'format', message: shorter }]);
  }
  reply.type('text/csv; charset=utf-8; header=present');
  return csvText(Object.keys(schema.properties), items);
}

/** Formats records as CSV (RFC 4180), with one column for each field. */
export function csvText(columns: readonly string[], records: readonly object[]): string {
  const lines = [
    columns,
    ...records.map((record) => columns.map((column) => cell(Reflect.get(record, column) as unknown))),
  ];
  return lines.map((line) => `${line.join(',')}\r\n`).join('');
}

/**
 * Formats a value as a CSV cell. Spreadsheets run a text as a formula if it begins with a character such as = or @. So
 * such a text gets an apostrophe at its beginning.
 */
function cell(value: unknown): string {
  if (value === null || value === undefined) return '';
  if (typeof value === 'number') return String(value);
  const text = textOf(value);
  const safe = /^[=+\-@\t\r\n|%]/.test(text) ? `'${text}` : text;
  return /[",\r\n']/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** Returns a value as text. Separates the values of a list by blanks, and the values of an object's fields by `=`. */
function textOf(value: unknown): string {
  if (Array.isArray(value)) return value.map(textOf).join(' ');
  if (typeof value === 'object' && value !== null) return Object.values(value).map(textOf).join('=');
  return String(value);
}
