import type { Selectable } from '../../database/kysely.js';
import { keyPrefixes } from '../../policy/key-format.js';
import { rangeOf, type Page, type Paging } from '../../rest/paging.js';
import { Refusal } from '../../rest/refusal.js';
import type { Change } from '../change.js';
import { statusTimeOf } from '../fields.js';
import type { RegistryDatabase } from '../registry-database.js';
import type { RegistryTables } from '../tables.js';
import type { ApiKey } from './schema.js';

/** A key as it is stored. */
export type StoredKey = Selectable<RegistryTables['api_keys']>;

/** A key to add, without the secret itself. */
export type KeyToAdd = Pick<
  StoredKey,
  'key_id' | 'merchant_id' | 'lookup_id' | 'environment' | 'permissions' | 'label' | 'expires_at'
>;

/** The merchant's keys, newest first. */
export async function listKeys(database: RegistryDatabase, merchantId: string, paging: Paging): Promise<Page<ApiKey>> {
  const { offset, limit } = rangeOf(paging);
  const owned = database.selectFrom('api_keys').where('merchant_id', '=', merchantId);
  const { total } = await owned.select((it) => it.fn.countAll<number>().as('total')).executeTakeFirstOrThrow();
  const rows = await owned
    .selectAll()
    .orderBy('created_revision', 'desc')
    // Keys of one import share a revision. Without a second column their order is undefined, and pages would repeat or
    // skip some.
    .orderBy('key_id', 'desc')
    .offset(offset)
    .limit(limit)
    .execute();
  return { items: rows.map(toApiKey), totalRecords: total };
}

/**
 * One key as it is stored.
 * @throws Refusal if it does not exist
 */
export async function findKey(database: RegistryDatabase, keyId: string): Promise<StoredKey> {
  const row = await database.selectFrom('api_keys').selectAll().where('key_id', '=', keyId).executeTakeFirst();
  if (row === undefined) throw Refusal.notFound('Key');
  return row;
}

/** Adds a key, as part of a change. */
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

/** Ends a key, now or later, as part of a change. */
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

/** A key in the admin API. Leaves out the lookup id, by which a stolen store could be searched. */
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
