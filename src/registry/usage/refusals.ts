import type { Selectable } from '../../database/kysely.js';
import { responseOf } from '../../policy/gateway-errors.js';
import { remedyOf } from '../../policy/remedies.js';
import { type Page, type Paging, rangeOf } from '../../rest/paging.js';
import type { RegistryDatabase } from '../registry-database.js';
import { storedForms } from './checked-batch.js';
import type { Refusal } from './schema.js';
import type { UsageTables } from './tables.js';

/** Which refusals of a merchant to list. */
export interface RefusalsFilter {
  readonly merchantId: string;
  readonly key?: string | undefined;
  readonly code?: string | undefined;
  readonly address?: string | undefined;
  readonly environment?: string | undefined;
  readonly requestId?: string | undefined;
  /** Beginning of the period, inclusive, in milliseconds since 1970. */
  readonly since?: number | undefined;
  /** End of the period, exclusive, in milliseconds since 1970. */
  readonly until?: number | undefined;
  /** If set, lists only refusals with a higher id, oldest first. Otherwise lists all, newest first. */
  readonly after?: number | undefined;
}

/**
 * Returns one page of a merchant's refusals. Refusals that are stored later get higher ids. So a client that passes the
 * highest id of a page as `after` misses no later refusal.
 */
export async function listRefusals(
  database: RegistryDatabase,
  filter: RefusalsFilter,
  paging: Paging,
): Promise<Page<Refusal>> {
  const { merchantId, key, code, address, environment, requestId, since, until, after } = filter;
  let wanted = database.selectFrom('usage_refusals').where('merchant_id', '=', merchantId);
  if (key !== undefined) wanted = wanted.where('key_id', '=', key);
  if (code !== undefined) wanted = wanted.where('code', '=', code);
  if (address !== undefined) wanted = wanted.where('address', 'in', storedForms(address));
  if (environment !== undefined) wanted = wanted.where('environment', '=', environment);
  if (requestId !== undefined) wanted = wanted.where('request_id', '=', requestId);
  if (since !== undefined) wanted = wanted.where('at', '>=', since);
  if (until !== undefined) wanted = wanted.where('at', '<', until);
  if (after !== undefined) wanted = wanted.where('seq', '>', after);
  const { total } = await wanted.select((it) => it.fn.countAll<number>().as('total')).executeTakeFirstOrThrow();
  const { offset, limit } = rangeOf(paging);
  const ordered = wanted.selectAll().orderBy('seq', after === undefined ? 'desc' : 'asc');
  const rows = await ordered.offset(offset).limit(limit).execute();
  return { items: rows.map(toRefusal), totalRecords: total };
}

function toRefusal(row: Selectable<UsageTables['usage_refusals']>): Refusal {
  const { seq, at, environment, code, status, method, path, address, key_id, header_name, header_value } = row;
  return {
    ...{ id: seq, at: new Date(at).toISOString(), environment, code, status },
    ...{ message: responseOf(code)?.message ?? null, meaning: remedyOf(code)?.meaning ?? null },
    remedy: remedyOf(code)?.remedy ?? null,
    ...{ method, path, address, keyId: key_id },
    header: header_name === null ? null : { name: header_name, value: header_value ?? '' },
    requestId: row.request_id,
  };
}
