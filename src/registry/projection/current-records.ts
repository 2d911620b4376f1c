import { sql, type Selectable } from '../../database/kysely.js';
import type { KeyRecord, MerchantRecord } from '../../gateway/records.js';
import { toApiKey, type StoredKey } from '../keys/repository.js';
import { toMerchant } from '../merchants/repository.js';
import type { StoreEntry } from '../../gateway/store-ports.js';
import type { RegistryDatabase } from '../registry-database.js';
import type { RegistryTables } from '../tables.js';

const keyPrefix = 'key:';
const merchantPrefix = 'merchant:';

/** The prefixes of the names of records: each record that the registry writes has one of these prefixes. */
export const recordPrefixes = [merchantPrefix, keyPrefix] as const;

/**
 * Reads the current records with these names (Redis keys). The value of an entry is null if the database has no such
 * record. Returns merchants before keys, because a gateway cannot use a key without its merchant.
 */
export async function currentRecords(database: RegistryDatabase, names: readonly string[]): Promise<StoreEntry[]> {
  const merchantIds = below(merchantPrefix, names);
  const lookupIds = below(keyPrefix, names);
  const merchants =
    merchantIds.length === 0
      ? []
      : await database.selectFrom('merchants').selectAll().where('id', 'in', merchantIds).execute();
  const keys = lookupIds.length === 0 ? [] : await storedKeys(database).where('lookup_id', 'in', lookupIds).execute();
  const found = [...merchants.map(merchantEntry), ...keys.map(keyEntry)];
  const known = new Set(found.map(({ name }) => name));
  return [...found, ...missingAmong(names, known).map((name) => ({ name, value: null }))];
}

/**
 * Returns the names of records that the database does not have. Reads only names, not whole rows, because a store can
 * have a million records, and the database has nearly all of them.
 */
export async function unknownNames(database: RegistryDatabase, names: readonly string[]): Promise<string[]> {
  const merchantIds = below(merchantPrefix, names);
  const lookupIds = below(keyPrefix, names);
  const merchants =
    merchantIds.length === 0
      ? []
      : await database.selectFrom('merchants').select('id').where('id', 'in', merchantIds).execute();
  const keys =
    lookupIds.length === 0
      ? []
      : await database.selectFrom('api_keys').select('lookup_id').where('lookup_id', 'in', lookupIds).execute();
  const found = [...merchants.map(({ id }) => merchantPrefix + id), ...keys.map((key) => keyPrefix + key.lookup_id)];
  return missingAmong(names, new Set(found));
}

/** Creates the record of a merchant, in the form that gateways read. */
export function merchantEntry(row: Selectable<RegistryTables['merchants']>): StoreEntry {
  const { id, name, status, goLive, ipAllowlist, originAllowlist, revision } = toMerchant(row);
  const value: MerchantRecord = {
    ...{ merchantId: id, name, status, goLive, ipAllowlist, originAllowlist, revision },
    ...statusChangedAt(row),
  };
  return { name: merchantPrefix + id, value };
}

/** A key, and whether a reset has replaced it by a new key. SQLite represents `is_replaced` as a number. */
type KeyToProject = StoredKey & { readonly is_replaced: number | boolean };

/**
 * Selects keys, with the column `is_replaced`. A reset changes the old key and creates its successor in one change. So
 * the `revision` (number of the change) of the old key equals the `created_revision` of its successor. If the two
 * columns of one key are equal, the key was never reset.
 */
export function storedKeys(database: RegistryDatabase) {
  const isReplaced = sql<number | boolean>`(expires_at is not null and revision <> created_revision and exists (
    select 1 from api_keys as successor
    where successor.merchant_id = api_keys.merchant_id and successor.created_revision = api_keys.revision))`;
  return database.selectFrom('api_keys').selectAll().select(isReplaced.as('is_replaced'));
}

/** Creates the record of a key, in the form that gateways read. */
export function keyEntry(row: KeyToProject): StoreEntry {
  const { keyId, merchantId, environment, status, permissions, expiresAt, label, revision } = toApiKey(row);
  const isInGrace = status === 'ACTIVE' && expiresAt !== null && Boolean(row.is_replaced);
  const value: KeyRecord = {
    ...{ keyId, merchantId, environment, status, permissions, expiresAt, revision },
    ...statusChangedAt(row),
    ...(label === null ? {} : { label }),
    ...(isInGrace ? { graceEndsAt: expiresAt } : {}),
  };
  return { name: keyPrefix + row.lookup_id, value };
}

/**
 * Returns the field with the time of the last status change. An active record gets no such field. Otherwise every
 * active record that an earlier release wrote would differ from the database and be rewritten.
 */
function statusChangedAt({ status, status_changed_at: at }: Pick<StoredKey, 'status' | 'status_changed_at'>) {
  return status === 'ACTIVE' || at === null ? {} : { statusChangedAt: new Date(at).toISOString() };
}

/** Returns the record name of a key's merchant; null if the entry is not a key or has no value. */
export function merchantOf({ name, value }: StoreEntry): string | null {
  const isKey = name.startsWith(keyPrefix) && value !== null && 'merchantId' in value;
  return isKey ? merchantPrefix + String(value.merchantId) : null;
}

/**
 * Whether the database can have a record of this name. Only such names are used in queries: other clients can store
 * keys with any name in Redis, and PostgreSQL rejects some names, for example with a NUL.
 */
export function canBeKnown(name: string): boolean {
  return /^(?:key|merchant):[A-Za-z0-9_-]{1,64}$/.test(name);
}

/**
 * Returns the names of records that are not in `known`. The outbox (changes to write) also contains names for added
 * gateways. These names have no record, so they are ignored.
 */
function missingAmong(names: readonly string[], known: ReadonlySet<string>): string[] {
  return [...new Set(names)].filter((name) => !known.has(name) && isRecord(name));
}

function isRecord(name: string): boolean {
  return recordPrefixes.some((prefix) => name.startsWith(prefix));
}

function below(prefix: string, names: readonly string[]): string[] {
  const usable = [...new Set(names)].filter((name) => name.startsWith(prefix) && canBeKnown(name));
  return usable.map((name) => name.slice(prefix.length));
}
