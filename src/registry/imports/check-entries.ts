import { resourceProblem } from '../keys/permission-problem.js';
import { type StoredKey, toApiKey } from '../keys/repository.js';
import { toMerchant } from '../merchants/repository.js';
import type { Merchant } from '../merchants/schema.js';
import type { RegistryContext } from '../registry-context.js';
import type { RegistryDatabase } from '../registry-database.js';
import { type Entry, type KeyEntry, type MerchantEntry, readEntry } from './entry.js';
import type { Checked, Counts } from './schema.js';

/** A problem with one entry of an import. */
export type EntryProblem = Checked['problems'][number];

/**
 * The entries of a batch that have to be imported, the number of entries that exist already (`present`), and the
 * problems.
 */
export interface CheckedEntries {
  readonly merchants: readonly MerchantEntry[];
  readonly keys: readonly KeyEntry[];
  readonly present: Counts;
  readonly problems: readonly EntryProblem[];
}

/**
 * Checks each entry of an import: by itself, against earlier entries, and against the database.
 * @param expected ids of merchants in earlier batches. Keys are allowed to refer to these merchants, even if the
 * merchants are not imported yet
 */
export async function checkEntries(
  { database, resources }: Pick<RegistryContext, 'database' | 'resources'>,
  given: readonly unknown[],
  expected: readonly string[] = [],
): Promise<CheckedEntries> {
  const problems: EntryProblem[] = [];
  const read: { index: number; entry: Entry }[] = [];
  for (const [index, value] of given.entries()) {
    const entry = readEntry(value);
    if ('type' in entry) read.push({ index, entry });
    else problems.push(...entry.map((problem) => ({ index, ...problem })));
  }
  const entries = read.map(({ entry }) => entry);
  const stored = entries.length === 0 ? nothing : await findStored(database, entries);
  const batch = new Batch(stored, expected, resources);
  for (const { index, entry } of read) {
    const problem = entry.type === 'merchant' ? batch.takeMerchant(entry, index) : batch.takeKey(entry, index);
    if (problem !== null) problems.push({ index, ...problem });
  }
  const { merchants, keys, present } = batch;
  return { merchants, keys, present, problems: problems.toSorted((a, b) => a.index - b.index) };
}

const nothing: StoredEntries = { merchants: new Map(), byLookupId: new Map(), byKeyId: new Map() };

type Problem = Omit<EntryProblem, 'index'>;

/**
 * Sorts valid entries into entries to import and entries that exist already. Its methods return the problem of an
 * invalid entry; null for a valid one.
 */
class Batch {
  readonly merchants: MerchantEntry[] = [];
  readonly keys: KeyEntry[] = [];
  readonly present = { merchants: 0, keys: 0 };
  readonly #stored: StoredEntries;
  readonly #known: Set<string>;
  readonly #resources: ReadonlySet<string>;
  readonly #seen = new Map<string, number>();

  constructor(stored: StoredEntries, expected: readonly string[], resources: ReadonlySet<string>) {
    this.#stored = stored;
    this.#resources = resources;
    this.#known = new Set([...stored.merchants.keys(), ...expected]);
  }

  takeMerchant(entry: MerchantEntry, index: number): Problem | null {
    const { merchantId } = entry;
    const repeated = this.#repeated('merchantId', merchantId, index, 'merchant');
    if (repeated !== null) return repeated;
    const stored = this.#stored.merchants.get(merchantId);
    const others = stored === undefined ? [] : merchantDifferences(entry, stored);
    if (others.length > 0) return thereAlready('merchantId', 'the merchant', others);
    this.#known.add(merchantId);
    if (stored === undefined) this.merchants.push(entry);
    else this.present.merchants += 1;
    return null;
  }

  takeKey(entry: KeyEntry, index: number): Problem | null {
    const { lookupId, keyId, merchantId } = entry;
    const repeated =
      this.#repeated('lookupId', lookupId, index) ??
      (keyId === null ? null : this.#repeated('keyId', keyId, index, 'key'));
    if (repeated !== null) return repeated;
    const stored = this.#stored.byLookupId.get(lookupId);
    const others = stored === undefined ? [] : keyDifferences(entry, stored);
    if (others.length > 0) return thereAlready('lookupId', 'the key', others);
    if (stored !== undefined) {
      this.present.keys += 1;
      return null;
    }
    if (keyId !== null && this.#stored.byKeyId.has(keyId)) {
      return { path: 'keyId', message: 'keyId belongs to another key in the registry' };
    }
    if (!this.#known.has(merchantId)) {
      const message = `merchantId: the registry has no merchant ${merchantId}. Import it before its keys, or correct the id`;
      return { path: 'merchantId', message };
    }
    // Accepts unknown resources in the permissions of a revoked key. Such a key permits nothing, and an older export
    // can contain resources that no longer exist.
    const problem = entry.status === 'REVOKED' ? null : resourceProblem(entry.permissions, this.#resources);
    if (problem === null) this.keys.push(entry);
    return problem;
  }

  #repeated(field: string, value: string, index: number, what: string = field): Problem | null {
    const name = `${what} ${value}`;
    const earlier = this.#seen.get(name);
    this.#seen.set(name, earlier ?? index);
    return earlier === undefined ? null : { path: field, message: `${field} is already used by entries[${earlier}]` };
  }
}

function thereAlready(path: string, what: string, others: readonly string[]): Problem {
  return { path, message: `${path}: ${what} is already in the registry, but differs in ${others.join(', ')}` };
}

/** The stored merchants and keys that the entries of a batch refer to. */
interface StoredEntries {
  readonly merchants: ReadonlyMap<string, Merchant>;
  readonly byLookupId: ReadonlyMap<string, StoredKey>;
  readonly byKeyId: ReadonlyMap<string, StoredKey>;
}

/** Reads each stored merchant that the entries name, and each stored key whose hash or id is in an entry. */
async function findStored(database: RegistryDatabase, entries: readonly Entry[]): Promise<StoredEntries> {
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

/** Returns the fields in which a stored key differs from an entry with an equal hash. */
function keyDifferences(entry: KeyEntry, row: StoredKey): string[] {
  const { keyId, merchantId, environment, status, permissions, label } = toApiKey(row);
  const stored = { keyId, merchantId, environment, status, permissions: inOrder(permissions), label };
  const { expiresAt, permissions: given, keyId: givenId, ...rest } = entry;
  return different(
    { ...rest, keyId: givenId ?? keyId, permissions: inOrder(given), expiresAt },
    { ...stored, expiresAt: row.expires_at },
  );
}

/** Returns the fields in which a stored merchant differs from an entry with an equal id. */
function merchantDifferences(entry: MerchantEntry, stored: Merchant): string[] {
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
