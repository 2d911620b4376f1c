import { sql } from '../../database/kysely.js';
import { type Page, type Paging, rangeOf } from '../../rest/paging.js';
import { dayMilliseconds, hourMilliseconds } from '../../usage/batch.js';
import type { RegistryDatabase } from '../registry-database.js';
import type { Period } from './list-response.js';
import type { UsageRow } from './schema.js';

/** Which requests to count. */
export interface HoursFilter extends Period {
  /** Empty: requests without a known key, which belong to no merchant. */
  readonly merchantId: string;
  readonly key?: string | undefined;
  readonly code?: string | undefined;
  readonly environment?: string | undefined;
}

/** What one row of the list counts: the requests of an hour, a day, a key or a code. */
export type UsageUnit = 'hour' | 'day' | 'key' | 'code';

const groups = {
  hour: sql<string | number>`hour`,
  day: sql<string | number>`(hour - hour % ${sql.lit(dayMilliseconds)})`,
  key: sql<string | number>`key_id`,
  code: sql<string | number>`code`,
} as const;

/** Returns the SQL sum of a column. The cast is for PostgreSQL, where a sum of integers is a decimal number. */
export function sumOf(column: string) {
  return sql<number>`cast(sum(${sql.id(column)}) as bigint)`;
}

function matching(database: RegistryDatabase, { merchantId, since, until, key, code, environment }: HoursFilter) {
  let wanted = database.selectFrom('usage_hours').where('merchant_id', '=', merchantId);
  wanted = wanted.where('hour', '>=', since).where('hour', '<', until);
  if (key !== undefined) wanted = wanted.where('key_id', '=', key);
  if (code !== undefined) wanted = wanted.where('code', '=', code);
  if (environment !== undefined) wanted = wanted.where('environment', '=', environment);
  return wanted;
}

/**
 * Returns one page of request counts. Rows of hours or days are sorted by time, newest first. Rows of keys or codes are
 * sorted by number of requests, highest first.
 */
export async function listHours(
  database: RegistryDatabase,
  filter: HoursFilter,
  by: UsageUnit,
  paging: Paging,
): Promise<Page<UsageRow>> {
  const wanted = matching(database, filter);
  const group = groups[by];
  const { total } = await wanted.select(sql<number>`count(distinct ${group})`.as('total')).executeTakeFirstOrThrow();
  const { offset, limit } = rangeOf(paging);
  const rows = await wanted
    .select([
      ...[group.as('name'), sumOf('count').as('requests')],
      sql<number>`cast(sum(case when code = 'accepted' then count else 0 end) as bigint)`.as('accepted'),
      ...[sumOf('request_bytes').as('request_bytes'), sumOf('response_bytes').as('response_bytes')],
      sql<number>`sum(total_milliseconds)`.as('total_milliseconds'),
      sql<number>`max(slowest_milliseconds)`.as('slowest_milliseconds'),
    ])
    .groupBy(group)
    .orderBy(by === 'hour' || by === 'day' ? sql`name desc` : sql`requests desc, name`)
    .offset(offset)
    .limit(limit)
    .execute();
  const codes = await codesOf(
    database,
    filter,
    by,
    rows.map(({ name }) => name),
  );
  const items = rows.map(({ name, requests, accepted, total_milliseconds, slowest_milliseconds, ...bytes }) => ({
    from: by === 'hour' || by === 'day' ? new Date(Number(name)).toISOString() : null,
    ...{ keyId: by === 'key' ? String(name) : null, code: by === 'code' ? String(name) : null },
    ...{ requests, accepted, refused: requests - accepted },
    averageMilliseconds: requests === 0 ? 0 : rounded(total_milliseconds / requests),
    slowestMilliseconds: rounded(slowest_milliseconds),
    ...{ requestBytes: bytes.request_bytes, responseBytes: bytes.response_bytes },
    codes: codes.get(name) ?? [],
  }));
  return { items, totalRecords: total };
}

function rounded(milliseconds: number): number {
  return Math.round(milliseconds * 100) / 100;
}

/** Returns, for each row of a page, the numbers of requests by code. */
async function codesOf(
  database: RegistryDatabase,
  filter: HoursFilter,
  by: UsageUnit,
  names: readonly (string | number)[],
): Promise<Map<string | number, UsageRow['codes']>> {
  const codes = new Map<string | number, UsageRow['codes']>();
  if (names.length === 0) return codes;
  const times = names.map(Number);
  const end = Math.max(...times) + (by === 'day' ? dayMilliseconds : hourMilliseconds);
  const period =
    by === 'hour' || by === 'day'
      ? { since: Math.max(filter.since, Math.min(...times)), until: Math.min(filter.until, end) }
      : {};
  let wanted = matching(database, { ...filter, ...period });
  if (by === 'key') wanted = wanted.where('key_id', 'in', names.map(String));
  const rows = await wanted
    .select([groups[by].as('name'), 'code', sumOf('count').as('requests')])
    .groupBy(['name', 'code'])
    .orderBy('requests', 'desc')
    .orderBy('code')
    .execute();
  for (const { name, code, requests } of rows) {
    const list = codes.get(name);
    if (list === undefined) codes.set(name, [{ code, requests }]);
    else list.push({ code, requests });
  }
  return codes;
}
