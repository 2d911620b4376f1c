import type { Selectable } from '../../database/kysely.js';
import type { KeyRecord, MerchantRecord } from '../../gateway/records.js';
import { toApiKey, type StoredKey } from '../keys/repository.js';
import { toMerchant } from '../merchants/repository.js';
import type { StoreEntry } from '../../gateway/store-ports.js';
import type { RegistryDatabase } from '../registry-database.js';
import type { RegistryTables } from '../tables.js';

const keyPrefix = 'key:';
const merchantPrefix = 'merchant:';

/** The beginnings of all names that the registry writes. */
export const recordPrefixes = [merchantPrefix, keyPrefix] as const;

/**
 * The records of these names as they are now; null for one that the database does not know. Merchants come first: a key
 * without its merchant cannot be judged.
 */
export async function currentRecords(database: RegistryDatabase, names: readonly string[]): Promise<StoreEntry[]> {
  const merchantIds = below(merchantPrefix, names);
  const lookupIds = below(keyPrefix, names);
  const merchants =
    merchantIds.length === 0
      ? []
      : await database.selectFrom('merchants').selectAll().where('id', 'in', merchantIds).execute();
  const keys =
    lookupIds.length === 0
      ? []
      : await database.selectFrom('api_keys').selectAll().where('lookup_id', 'in', lookupIds).execute();
  const found = [...merchants.map(merchantEntry), ...keys.map(keyEntry)];
  const known = new Set(found.map(({ name }) => name));
  return [...found, ...missingAmong(names, known).map((name) => ({ name, value: null }))];
}

/** The names of records that the database does not know. It is asked for names alone: a store may have a million, nearly all known. */
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

/** A merchant as gateways read it. */
export function merchantEntry(row: Selectable<RegistryTables['merchants']>): StoreEntry {
  const { id, name, status, goLive, ipAllowlist, originAllowlist, revision } = toMerchant(row);
  const value: MerchantRecord = { merchantId: id, name, status, goLive, ipAllowlist, originAllowlist, revision };
  return { name: merchantPrefix + id, value };
}

/** A key as gateways read it. */
export function keyEntry(row: StoredKey): StoreEntry {
  const { keyId, merchantId, environment, status, permissions, expiresAt, revision } = toApiKey(row);
  const value: KeyRecord = { keyId, merchantId, environment, status, permissions, expiresAt, revision };
  return { name: keyPrefix + row.lookup_id, value };
}

/** The name of the record of a key's merchant; null for a record that is no key's. */
export function merchantOf({ name, value }: StoreEntry): string | null {
  const isKey = name.startsWith(keyPrefix) && value !== null && 'merchantId' in value;
  return isKey ? merchantPrefix + String(value.merchantId) : null;
}

/** Whether a database can know a record of this name. Redis may hold others, and PostgreSQL refuses to be asked for some, such as a NUL. */
export function canBeKnown(name: string): boolean {
  return /^(?:key|merchant):[A-Za-z0-9_-]{1,64}$/.test(name);
}

/** A change of the roster has a name in the outbox, and no record. */
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
