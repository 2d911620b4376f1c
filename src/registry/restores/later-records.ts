import type { Selectable } from '../../database/kysely.js';
import { MalformedRecord, parseKeyRecord, parseMerchantRecord } from '../../gateway/records.js';
import type { KeyRecord, MerchantRecord } from '../../gateway/records.js';
import type { StoredKey } from '../keys/repository.js';
import { canBeKnown } from '../projection/current-records.js';
import type { StoreEntry } from '../../gateway/store-ports.js';
import type { RegistryDatabase } from '../registry-database.js';
import type { RegistryTables } from '../tables.js';
import { neverLifted, type RestrictedField, type RestrictedRecord, type Restriction } from './never-lifted.js';

/**
 * A key whose record in the store, or in a gateway's report, has fewer rights than its row in the database because of a
 * change that the database lacks. `record` omits the restrictions that a later change in the database has lifted
 * (removed).
 */
export interface LaterKey {
  readonly row: StoredKey;
  readonly record: KeyRecord;
}

/**
 * A merchant whose record in the store, or in a gateway's report, has fewer rights than its row in the database because
 * of a change that the database lacks. `record` omits the restrictions that a later change in the database has lifted
 * (removed).
 */
export interface LaterMerchant {
  readonly row: Selectable<RegistryTables['merchants']>;
  readonly record: MerchantRecord;
}

/**
 * Finds the entries that have fewer rights than their rows in the database because the database lacks a change. An
 * entry has fewer rights if it is inactive, is not live or expires earlier. The database lacks a change in these cases
 * (a revision is the number of a change):
 * 1. The entry has a higher revision than its row.
 * 2. The row has an unpublished change with a revision up to `uncompared`. After a restore, the database might have
 *    reused revisions, and a reused revision does not show which change is later.
 * 3. No change after the entry's revision gave the row the rights that the entry lacks (see `neverLifted`). If such a
 *    change gave the row some of these rights, only the other rights are restricted.
 * @param uncompared the highest revision that could stand for different changes in an entry and in the database; 0 if
 *   no revision was reused
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
  const keys = keyRows.flatMap((row) => {
    const record = keyRecords.get(row.lookup_id);
    if (record === undefined) return [];
    const common = { merchantId: row.merchant_id, keyId: row.key_id, revision: record.revision };
    return [{ row, record, name: `key:${row.lookup_id}`, ...common, restrictions: keyRestrictions(record, row) }];
  });
  const merchants = merchantRows.flatMap((row) => {
    const record = merchantRecords.get(row.id);
    if (record === undefined) return [];
    const common = { merchantId: row.id, keyId: null, revision: record.revision };
    return [{ row, record, name: `merchant:${row.id}`, ...common, restrictions: merchantRestrictions(record, row) }];
  });
  const waiting = await waitingNames(database, usable, uncompared);
  const isLater = ({ row, revision, name }: Compared): boolean => revision > row.revision || waiting.has(name);
  const compared: readonly Compared[] = [...keys, ...merchants];
  const lost = await neverLifted(
    database,
    compared.filter((one) => !isLater(one)),
  );
  const isLacking = (one: Compared): boolean => one.restrictions.length > 0 && (isLater(one) || lost.has(one));
  // A record that is not later than its row keeps only the restrictions that the database has not lifted since.
  const keeps = (one: Compared, field: RestrictedField): boolean => isLater(one) || lost.get(one)?.has(field) === true;
  const laterKeys = keys.filter(isLacking).map((one): LaterKey => {
    const { row, record } = one;
    const status = keeps(one, 'status') ? record.status : 'ACTIVE';
    return { row, record: { ...record, status, expiresAt: keeps(one, 'expiresAt') ? record.expiresAt : null } };
  });
  const laterMerchants = merchants.filter(isLacking).map((one): LaterMerchant => {
    const { row, record } = one;
    const status = keeps(one, 'status') ? record.status : 'ACTIVE';
    return { row, record: { ...record, status, goLive: keeps(one, 'goLive') ? record.goLive : true } };
  });
  return { keys: laterKeys, merchants: laterMerchants };
}

/** An entry and its row in the database. */
interface Compared extends RestrictedRecord {
  readonly row: { readonly revision: number };
  readonly name: string;
}

/**
 * Returns the names of those entries that are in the outbox with this revision or a lower one. The outbox has the
 * changes that are not yet written to the store.
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

/** Returns the restrictions that the record has and the row lacks. A row that is not active lacks no restriction. */
function keyRestrictions({ status, expiresAt }: KeyRecord, row: StoredKey): Restriction[] {
  if (row.status !== 'ACTIVE') return [];
  const end = endOf(expiresAt);
  const restrictions: Restriction[] = status === 'ACTIVE' ? [] : [inactive];
  const isIn: Restriction['isIn'] = (state) => typeof state.expiresAt === 'string' && endOf(state.expiresAt) <= end;
  if (end < (row.expires_at ?? Infinity)) restrictions.push({ field: 'expiresAt', isIn });
  return restrictions;
}

/** Returns the restrictions that the record has and the row lacks. */
function merchantRestrictions({ status, goLive }: MerchantRecord, row: LaterMerchant['row']): Restriction[] {
  const restrictions: Restriction[] = status !== 'ACTIVE' && row.status === 'ACTIVE' ? [inactive] : [];
  if (!goLive && row.go_live === 1) restrictions.push({ field: 'goLive', isIn: (state) => state.goLive === false });
  return restrictions;
}

const inactive: Restriction = {
  field: 'status',
  isIn: ({ status }) => typeof status === 'string' && status !== 'ACTIVE',
};

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
