import type { Static } from '../../typebox/typebox.js';
import type { RegistryDatabase } from '../registry-database.js';
import type { lastUse } from './schema.js';

/** Returns the last accepted request of each key, by key id. Omits keys without an accepted request. */
export async function lastUsesOf(
  database: RegistryDatabase,
  keyIds: readonly string[],
): Promise<Map<string, Static<typeof lastUse>>> {
  if (keyIds.length === 0) return new Map();
  const rows = await database.selectFrom('usage_keys').selectAll().where('key_id', 'in', keyIds).execute();
  return new Map(
    rows.map(({ key_id, last_at, last_address, last_country }) => [
      key_id,
      { at: new Date(last_at).toISOString(), address: last_address, country: last_country },
    ]),
  );
}
