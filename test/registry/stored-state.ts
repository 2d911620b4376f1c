import type { Selectable } from '../../src/database/kysely.js';
import type { RegistryDatabase } from '../../src/registry/registry-database.js';
import type { RegistryTables } from '../../src/registry/tables.js';
import type { MemoryRecordsStore } from './memory-records-store.js';

/** The expected records of the store, sorted by name; read from the tables without the code under test. */
export async function expectedRecords(database: RegistryDatabase): Promise<Record<string, object>> {
  const merchants = await database.selectFrom('merchants').selectAll().execute();
  const keys = await database.selectFrom('api_keys').selectAll().execute();
  const list = (text: string | null): unknown => (text === null ? null : JSON.parse(text));
  return inOrder([
    ...merchants.map((row): [string, object] => [
      `merchant:${row.id}`,
      {
        ...{ merchantId: row.id, name: row.name, status: row.status, goLive: row.go_live === 1 },
        ...{ ipAllowlist: list(row.ip_allowlist), originAllowlist: list(row.origin_allowlist), revision: row.revision },
        ...since(row),
      },
    ]),
    ...keys.map((row): [string, object] => [
      `key:${row.lookup_id}`,
      {
        ...{ keyId: row.key_id, merchantId: row.merchant_id, environment: row.environment, status: row.status },
        ...{ permissions: list(row.permissions), revision: row.revision },
        expiresAt: row.expires_at === null ? null : new Date(row.expires_at).toISOString(),
        ...since(row),
        ...(row.label === null ? {} : { label: row.label }),
        ...graceOf(row, keys),
      },
    ]),
  ]);
}

function since({ status, status_changed_at: at }: { status: string; status_changed_at: number | null }): object {
  return status !== 'ACTIVE' && at !== null ? { statusChangedAt: new Date(at).toISOString() } : {};
}

type Key = Selectable<RegistryTables['api_keys']>;

/**
 * Returns the field of a key's record that has the end of its grace period, or no field if the key has no such period.
 * A reset starts the period: in one change it limits the old key's validity, and creates another key of the merchant.
 */
function graceOf(row: Key, keys: readonly Key[]): object {
  if (row.status !== 'ACTIVE' || row.expires_at === null || row.revision === row.created_revision) return {};
  const isSuccessor = (one: Key): boolean =>
    one.merchant_id === row.merchant_id && one.created_revision === row.revision;
  return keys.some(isSuccessor) ? { graceEndsAt: new Date(row.expires_at).toISOString() } : {};
}

/** The actual records of the store, in the form of `expectedRecords`. */
export function storedRecords({ records }: MemoryRecordsStore): Record<string, object> {
  return inOrder([...records]);
}

/** The names of the records that differ between the database and the store; for tests that compare often. */
export async function differences(database: RegistryDatabase, store: MemoryRecordsStore): Promise<string[]> {
  const [expected, found] = [await expectedRecords(database), storedRecords(store)];
  const names = new Set([...Object.keys(expected), ...Object.keys(found)]);
  const text = (record: object | undefined): string =>
    JSON.stringify(Object.entries(record ?? {}).toSorted(([a], [b]) => (a < b ? -1 : 1)));
  return [...names].filter((name) => text(expected[name]) !== text(found[name]));
}

/** The number of changes that are not projected yet. */
export async function waitingChanges(database: RegistryDatabase): Promise<number> {
  return (await database.selectFrom('outbox').selectAll().execute()).length;
}

function inOrder(entries: [string, object][]): Record<string, object> {
  return Object.fromEntries(entries.toSorted(([a], [b]) => (a < b ? -1 : 1)));
}
