import type { Selectable } from '../../database/kysely.js';
import { MalformedRecord, parseKeyRecord, parseMerchantRecord } from '../../gateway/records.js';
import type { KeyRecord, MerchantRecord } from '../../gateway/records.js';
import type { StoredKey } from '../keys/repository.js';
import { canBeKnown } from '../projection/current-records.js';
import type { StoreEntry } from '../../gateway/store-ports.js';
import type { RegistryDatabase } from '../registry-database.js';
import type { RegistryTables } from '../tables.js';

/**
 * A key whose record in the store, or in a gateway's report, has a later revision (number of a change) and fewer rights
 * than its row in the database.
 */
export interface LaterKey {
  readonly row: StoredKey;
  readonly record: KeyRecord;
}

/**
 * A merchant whose record in the store, or in a gateway's report, has a later revision (number of a change) and fewer
 * rights than its row in the database.
 */
export interface LaterMerchant {
  readonly row: Selectable<RegistryTables['merchants']>;
  readonly record: MerchantRecord;
}

/**
 * Finds the entries that have fewer rights than the database (inactive, not live, or an earlier expiry) because the
 * database lacks a change. The database lacks a change if the revision (number of a change) of an entry is higher than
 * that of its row.
 * @param uncompared the highest revision that could stand for different changes in an entry and in the database,
 *   because the restored database might have used it again. Up to this revision, the higher number need not be the
 *   later change. So an entry also counts as later if its row has an unpublished change with such a revision
 */
export async function laterRecords(
  database: RegistryDatabase,
  entries: readonly StoreEntry[],
  uncompared: number,
): Promise<{ keys: LaterKey[]; merchants: LaterMerchant[] }> {
  const usable = entries.filter(({ name }) => canBeKnown(name));
  const keyRecords = read(usable, 'key:', parseKeyRecord);
  const merchantRecords = read(usable, 'merchant:', parseMerchantRecord);
  const [lookupIds, ids] = [[...keyRecords.keys()], [...merchantRecords.keys()]];
  const keyRows =
    lookupIds.length === 0
      ? []
      : await database.selectFrom('api_keys').selectAll().where('lookup_id', 'in', lookupIds).execute();
  const merchantRows =
    ids.length === 0 ? [] : await database.selectFrom('merchants').selectAll().where('id', 'in', ids).execute();
  const waiting = await waitingNames(database, usable, uncompared);
  return {
    keys: keyRows.flatMap((row) => {
      const record = keyRecords.get(row.lookup_id);
      const isLater = (record?.revision ?? 0) > row.revision || waiting.has(`key:${row.lookup_id}`);
      return record !== undefined && isLater && grantsLess(record, row) ? [{ row, record }] : [];
    }),
    merchants: merchantRows.flatMap((row) => {
      const record = merchantRecords.get(row.id);
      if (record === undefined) return [];
      if (record.revision <= row.revision && !waiting.has(`merchant:${row.id}`)) return [];
      const isLess = (record.status !== 'ACTIVE' && row.status === 'ACTIVE') || (!record.goLive && row.go_live === 1);
      return isLess ? [{ row, record }] : [];
    }),
  };
}

/**
 * Returns the names of those entries that are in the outbox (changes not yet written to the store) with this revision
 * (number of a change) or a lower one.
 */
async function waitingNames(
  database: RegistryDatabase,
  entries: readonly StoreEntry[],
  revision: number,
): Promise<ReadonlySet<string>> {
  const names = entries.map(({ name }) => name);
  if (revision === 0 || names.length === 0) return new Set();
  const rows = await database
    .selectFrom('outbox')
    .select('name')
    .where('name', 'in', names)
    .where('revision', '<=', revision)
    .execute();
  return new Set(rows.map(({ name }) => name));
}

function grantsLess({ status, expiresAt }: KeyRecord, row: StoredKey): boolean {
  if (row.status !== 'ACTIVE') return false;
  return status !== 'ACTIVE' || endOf(expiresAt) < (row.expires_at ?? Infinity);
}

/** Returns when a record expires, in milliseconds since 1970. Infinity if the expiry is missing or invalid. */
export function endOf(expiresAt: string | null): number {
  const end = expiresAt === null ? NaN : Date.parse(expiresAt);
  return Number.isNaN(end) ? Infinity : end;
}

/**
 * Parses the records whose names have this prefix. The keys of the map are the names without the prefix. Skips
 * malformed records.
 */
function read<Kept>(
  entries: readonly StoreEntry[],
  prefix: string,
  parse: (value: unknown) => Kept,
): ReadonlyMap<string, Kept> {
  const found = new Map<string, Kept>();
  for (const { name, value } of entries) {
    if (!name.startsWith(prefix) || value === null) continue;
    try {
      found.set(name.slice(prefix.length), parse(value));
    } catch (error) {
      if (!(error instanceof MalformedRecord)) throw error;
    }
  }
  return found;
}
