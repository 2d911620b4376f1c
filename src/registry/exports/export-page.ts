import type { Environment } from '../../policy/key-format.js';
import { type StoredKey, toApiKey } from '../keys/repository.js';
import { allowlistConcerns } from '../merchants/allowlists.js';
import { toMerchant } from '../merchants/repository.js';
import type { Merchant } from '../merchants/schema.js';
import type { RegistryDatabase } from '../registry-database.js';
import { fillPage } from './fill-page.js';
import type { ExportPage } from './schema.js';

/** Filter of an export: one merchant, and keys of one environment. A missing field limits nothing. */
export interface ExportFilter {
  readonly merchantId?: string | undefined;
  readonly environment?: Environment | undefined;
  /**
   * Omits records that were created after this revision (number of a change). Otherwise an export could contain a new
   * key without its merchant: the page to which the merchant belongs might have been read before the merchant was
   * created.
   */
  readonly until: number;
}

const firstKey = 'key:';
/**
 * Rows per query. The number is lower for merchants, because the allowlists of one merchant can have 300 KiB. A key has
 * at most a tenth of that size.
 */
const readAtOnce = { merchants: 50, keys: 500 } as const;

/**
 * Reads the entries after a cursor. Merchants come before keys, and merchants and keys are sorted by id. Because of
 * this order, an export neither repeats nor skips an entry if records change during the export.
 * @param after `next` of the previous page; default: the beginning
 */
export async function readExportPage(
  database: RegistryDatabase,
  filter: ExportFilter,
  after = 'merchant:',
): Promise<Omit<ExportPage, 'revision'>> {
  const place = after.slice(after.indexOf(':') + 1);
  if (after.startsWith(firstKey)) {
    const { entries, last } = await fillPage(place, {
      readAtOnce: readAtOnce.keys,
      read: (after, limit) => readKeys(database, filter, after, limit),
      idOf: ({ key_id }) => key_id,
      entryOf: keyEntry,
    });
    return { entries, next: last === null ? null : firstKey + last };
  }
  const { entries, last } = await fillPage(place, {
    readAtOnce: readAtOnce.merchants,
    read: (after, limit) => readMerchants(database, filter, after, limit),
    idOf: ({ id }) => id,
    entryOf: merchantEntry,
  });
  return { entries, next: last === null ? firstKey : `merchant:${last}` };
}

function readKeys(
  database: RegistryDatabase,
  { merchantId, environment, until }: ExportFilter,
  after: string,
  limit: number,
): Promise<StoredKey[]> {
  let keys = database
    .selectFrom('api_keys')
    .selectAll()
    .where('key_id', '>', after)
    .where('created_revision', '<=', until);
  if (merchantId !== undefined) keys = keys.where('merchant_id', '=', merchantId);
  if (environment !== undefined) keys = keys.where('environment', '=', environment);
  return keys.orderBy('key_id').limit(limit).execute();
}

async function readMerchants(
  database: RegistryDatabase,
  { merchantId, until }: ExportFilter,
  after: string,
  limit: number,
): Promise<Merchant[]> {
  let merchants = database
    .selectFrom('merchants')
    .selectAll()
    .where('id', '>', after)
    .where('created_revision', '<=', until);
  if (merchantId !== undefined) merchants = merchants.where('id', '=', merchantId);
  return (await merchants.orderBy('id').limit(limit).execute()).map(toMerchant);
}

function merchantEntry({ id, name, status, goLive, ipAllowlist, originAllowlist }: Merchant) {
  const lists = { ipAllowlist, originAllowlist };
  // Includes the confirmations (`confirm`) that these lists required. Without them, an import of this entry would be
  // rejected.
  const confirm = [...new Set(allowlistConcerns(lists).map(({ flag }) => flag))];
  return {
    ...({ type: 'merchant', merchantId: id, name, status, goLive } as const),
    ipAllowlist: ipAllowlist === null ? null : [...ipAllowlist],
    originAllowlist: originAllowlist === null ? null : [...originAllowlist],
    ...(confirm.length === 0 ? {} : { confirm }),
  };
}

function keyEntry(row: StoredKey) {
  const { keyId, merchantId, environment, status, permissions, expiresAt, label } = toApiKey(row);
  return {
    ...({ type: 'key', keyId, lookupId: row.lookup_id, merchantId, environment } as const),
    ...{ status: status as 'ACTIVE', permissions: [...permissions], expiresAt, label },
  };
}
