import type { Selectable } from '../../database/kysely.js';
import { keyPrefixes } from '../../policy/key-format.js';
import { rangeOf, type Page, type Paging } from '../../rest/paging.js';
import { hasPart, statusTimeOf } from '../fields.js';
import { Refusal } from '../../rest/refusal.js';
import type { Change } from '../change.js';
import type { RegistryDatabase } from '../registry-database.js';
import type { RegistryTables } from '../tables.js';
import { lastUsesOf } from '../usage/last-use.js';
import type { ApiKey, KeyFilter, ListedKey } from './schema.js';

/** A row of the table of keys. */
export type StoredKey = Selectable<RegistryTables['api_keys']>;

/** The columns of a new key. They do not contain the key's secret. */
export type KeyToAdd = Pick<
  StoredKey,
  'key_id' | 'merchant_id' | 'lookup_id' | 'environment' | 'permissions' | 'label' | 'expires_at'
>;

/** Returns one page of a merchant's keys that match the filter, newest first. */
export async function listKeys(
  database: RegistryDatabase,
  merchantId: string,
  { environment, status, label }: KeyFilter,
  paging: Paging,
): Promise<Page<ListedKey>> {
  const { offset, limit } = rangeOf(paging);
  let owned = database.selectFrom('api_keys').where('merchant_id', '=', merchantId);
  if (environment !== undefined) owned = owned.where('environment', '=', environment);
  if (status !== undefined) owned = owned.where('status', '=', status);
  if (label !== undefined) owned = owned.where(hasPart('label', label));
  const { total } = await owned.select((it) => it.fn.countAll<number>().as('total')).executeTakeFirstOrThrow();
  const rows = await owned
    .selectAll()
    .orderBy('created_revision', 'desc')
    // Sorts by id too: keys of one import have the same revision (number of the change). Without a fixed order, pages
    // would repeat or skip keys.
    .orderBy('key_id', 'desc')
    .offset(offset)
    .limit(limit)
    .execute();
  return { items: await toListedKeys(database, rows), totalRecords: total };
}

/** Returns keys of one merchant as lists show them: with their creators and last uses. */
export async function toListedKeys(database: RegistryDatabase, rows: readonly StoredKey[]): Promise<ListedKey[]> {
  const lastUses = await lastUsesOf(
    database,
    rows.map(({ key_id }) => key_id),
  );
  const creators = await creatorsOf(database, rows);
  return rows.map((row) => ({
    ...toApiKey(row),
    createdBy: creators.get(row.key_id) ?? creators.get(row.created_revision) ?? null,
    lastUse: lastUses.get(row.key_id) ?? null,
  }));
}

/**
 * Returns the names of the creators of one merchant's keys. The map contains the creator of a created key under the id
 * of the key. It contains the creator of imported keys under the revision (number of the change) of the import, because
 * an import stores one event for many keys.
 */
async function creatorsOf(
  database: RegistryDatabase,
  rows: readonly StoredKey[],
): Promise<Map<string | number | null, string>> {
  const [first] = rows;
  if (first === undefined) return new Map();
  const [ids, revisions] = [rows.map(({ key_id }) => key_id), rows.map((row) => row.created_revision)];
  const events = database.selectFrom('events').select(['actor', 'key_id', 'revision']);
  const created = await events.where('key_id', 'in', ids).where('action', '=', 'key.created').execute();
  const imported = await events
    .where('merchant_id', '=', first.merchant_id)
    .where('revision', 'in', revisions)
    .where('action', '=', 'keys.imported')
    .execute();
  return new Map<string | number | null, string>([
    ...imported.map(({ revision, actor }) => [revision, actor] as const),
    ...created.map(({ key_id, actor }) => [key_id, actor] as const),
  ]);
}

/**
 * Finds a key by its id.
 * @throws Refusal if the key does not exist
 */
export async function findKey(database: RegistryDatabase, keyId: string): Promise<StoredKey> {
  const row = await database.selectFrom('api_keys').selectAll().where('key_id', '=', keyId).executeTakeFirst();
  if (row === undefined) throw Refusal.notFound('Key');
  return row;
}

/** Inserts a key in the transaction of a change. */
export function insertKey({ transaction, revision, now }: Change, key: KeyToAdd): Promise<StoredKey> {
  return transaction
    .insertInto('api_keys')
    .values({
      ...{ ...key, status: 'ACTIVE', status_changed_at: now },
      ...{ created_revision: revision, revision, created_at: now, updated_at: now },
    })
    .returningAll()
    .executeTakeFirstOrThrow();
}

/** Revokes a key, or sets its expiry, in the transaction of a change. */
export function endKey(
  { transaction, revision, now }: Change,
  keyId: string,
  end: { readonly status: 'REVOKED' } | { readonly expires_at: number },
): Promise<StoredKey> {
  return transaction
    .updateTable('api_keys')
    .set({ ...end, ...('status' in end ? { status_changed_at: now } : {}), revision, updated_at: now })
    .where('key_id', '=', keyId)
    .returningAll()
    .executeTakeFirstOrThrow();
}

/**
 * Converts a row to a key of the admin API. Omits the lookup id (the hash of the key): with it, an attacker could find
 * the key's record in a stolen copy of the gateways' store.
 */
export function toApiKey(row: StoredKey): ApiKey {
  return {
    keyId: row.key_id,
    merchantId: row.merchant_id,
    environment: row.environment,
    prefix: keyPrefixes[row.environment],
    status: row.status,
    permissions: JSON.parse(row.permissions) as string[],
    label: row.label,
    expiresAt: row.expires_at === null ? null : new Date(row.expires_at).toISOString(),
    revision: row.revision,
    createdAt: new Date(row.created_at).toISOString(),
    updatedAt: new Date(row.updated_at).toISOString(),
    statusChangedAt: statusTimeOf(row),
  };
}
