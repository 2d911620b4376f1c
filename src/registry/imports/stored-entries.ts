import { toApiKey, type StoredKey } from '../keys/repository.js';
import { toMerchant } from '../merchants/repository.js';
import type { Merchant } from '../merchants/schema.js';
import type { RegistryDatabase } from '../registry-database.js';
import type { Entry, KeyEntry, MerchantEntry } from './entry.js';

/** What the registry holds of what a batch speaks of. */
export interface StoredEntries {
  readonly merchants: ReadonlyMap<string, Merchant>;
  readonly byLookupId: ReadonlyMap<string, StoredKey>;
  readonly byKeyId: ReadonlyMap<string, StoredKey>;
}

/** Finds what is there already: every merchant that is named, and every key of one of the hashes or ids. */
export async function findStored(database: RegistryDatabase, entries: readonly Entry[]): Promise<StoredEntries> {
  const keys = entries.filter((entry) => entry.type === 'key');
  const merchantIds = [...new Set(entries.map(({ merchantId }) => merchantId))];
  const merchants = await database.selectFrom('merchants').selectAll().where('id', 'in', merchantIds).execute();
  const lookupIds = keys.map(({ lookupId }) => lookupId);
  const keyIds = keys.map(({ keyId }) => keyId).filter((keyId) => keyId !== null);
  const found = database.selectFrom('api_keys').selectAll();
  const byLookupId = lookupIds.length === 0 ? [] : await found.where('lookup_id', 'in', lookupIds).execute();
  const byKeyId = keyIds.length === 0 ? [] : await found.where('key_id', 'in', keyIds).execute();
  return {
    merchants: new Map(merchants.map((row) => [row.id, toMerchant(row)])),
    byLookupId: new Map(byLookupId.map((row) => [row.lookup_id, row])),
    byKeyId: new Map(byKeyId.map((row) => [row.key_id, row])),
  };
}

/** In what a stored key is another one than an entry of the same hash says; empty: it is that one. */
export function keyDifferences(entry: KeyEntry, row: StoredKey): string[] {
  const { keyId, merchantId, environment, status, permissions, label } = toApiKey(row);
  const stored = { keyId, merchantId, environment, status, permissions: inOrder(permissions), label };
  const { expiresAt, permissions: given, keyId: givenId, ...rest } = entry;
  return different(
    { ...rest, keyId: givenId ?? keyId, permissions: inOrder(given), expiresAt },
    { ...stored, expiresAt: row.expires_at },
  );
}

/** In what a stored merchant is another one than an entry of the same id says. */
export function merchantDifferences(entry: MerchantEntry, stored: Merchant): string[] {
  const { name, status, goLive, ipAllowlist, originAllowlist } = stored;
  return different(entry, { name, status, goLive, ipAllowlist, originAllowlist });
}

function different(entry: object, stored: object): string[] {
  return Object.entries(stored)
    .filter(([name, value]) => JSON.stringify(Reflect.get(entry, name)) !== JSON.stringify(value))
    .map(([name]) => name);
}

function inOrder(permissions: readonly string[]): string[] {
  return permissions.toSorted();
}
