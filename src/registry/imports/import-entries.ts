import { rulesIn } from '../approvals/guard.js';
import type { Author } from '../events/author.js';
import { Refusal } from '../../rest/refusal.js';
import { makeChange, type Change } from '../change.js';
import type { NewEvent } from '../events/repository.js';
import { settingColumns, toMerchant } from '../merchants/repository.js';
import { newId, type RegistryContext } from '../registry-context.js';
import { checkEntries, type EntryProblem } from './check-entries.js';
import type { KeyEntry, MerchantEntry } from './entry.js';
import type { Counts } from './schema.js';

/** Result of an import. */
export interface Imported {
  readonly created: Counts;
  readonly present: Counts;
  /** Revision (number) of the change; null if all entries were already present. */
  readonly revision: number | null;
}

const mostProblems = 100;

/**
 * Imports all entries in one change. If an entry is invalid, imports no entries. Skips entries that exist with the same
 * content, so that a client can repeat an import.
 * @throws Refusal with the problems of the entries, or if a merchant would go live and this needs approval
 */
export function importEntries(
  context: Pick<RegistryContext, 'database' | 'clock' | 'random' | 'onChange' | 'resources'>,
  author: Author,
  given: readonly unknown[],
): Promise<Imported> {
  return makeChange<Imported>(context, author, async (change) => {
    const { merchants, keys, present, problems } = await checkEntries(
      { database: change.transaction, resources: context.resources },
      given,
    );
    const [first, ...others] = problems.slice(0, mostProblems).map(asProblem);
    if (first !== undefined) throw Refusal.invalid([first, ...others]);
    const created = { merchants: merchants.length, keys: keys.length };
    if (merchants.length + keys.length === 0) return { result: { created, present, revision: null }, changed: null };

    await requireNoGoLive(change, merchants);
    const merchantEvents = await addMerchants(change, merchants);
    const keyEvents = await addKeys(change, keys, () => newId('key', change.now, context.random));
    const records = [
      ...merchants.map(({ merchantId }) => `merchant:${merchantId}`),
      ...keys.map(({ lookupId }) => `key:${lookupId}`),
    ];
    const result = { created, present, revision: change.revision };
    return { result, changed: { events: [...merchantEvents, ...keyEvents], records } };
  });
}

/**
 * Rejects an import in which a merchant goes live, if the approval rules require approval for this.
 * @throws Refusal
 */
async function requireNoGoLive({ transaction }: Change, merchants: readonly MerchantEntry[]): Promise<void> {
  const live = merchants.find(({ goLive }) => goLive);
  if (live === undefined || !(await rulesIn(transaction)).goLive) return;
  throw new Refusal(
    409,
    `The merchant ${live.merchantId} would go live, which needs approval: import it with goLive false, then run "merchant-gateway merchants set ${live.merchantId} --go-live"`,
    [],
    'approval_required',
  );
}

function asProblem({ index, path, message }: EntryProblem) {
  const place = `entries[${index}]`;
  return { path: path === '' ? place : `${place}.${path}`, message: `${place}: ${message}` };
}

async function addMerchants(change: Change, merchants: readonly MerchantEntry[]): Promise<NewEvent[]> {
  if (merchants.length === 0) return [];
  const rows = merchants.map((merchant) => ({
    id: merchant.merchantId,
    ...settingColumns(merchant),
    ...stamps(change),
  }));
  await change.transaction.insertInto('merchants').values(rows).execute();
  return rows.map((row) => ({
    ...{ action: 'merchant.imported', merchantId: row.id, keyId: null, before: null, after: toMerchant(row) },
  }));
}

/**
 * Inserts keys. Returns one event per merchant with all key ids, because one event per key would fill the audit trail.
 * The event does not contain the states of the keys. The imported state of a key is `before` in the next event about
 * the key. If no further event exists, the key still has the imported state.
 */
async function addKeys(change: Change, keys: readonly KeyEntry[], nextId: () => string): Promise<NewEvent[]> {
  if (keys.length === 0) return [];
  const rows = keys.map(({ keyId, lookupId, merchantId, environment, status, permissions, label, expiresAt }) => ({
    ...{ key_id: keyId ?? nextId(), merchant_id: merchantId, lookup_id: lookupId, environment, status, label },
    permissions: JSON.stringify(permissions),
    expires_at: expiresAt,
    ...stamps(change),
  }));
  await change.transaction.insertInto('api_keys').values(rows).execute();
  const imported = new Map<string, string[]>();
  for (const { merchant_id, key_id } of rows) {
    const ids = imported.get(merchant_id);
    if (ids === undefined) imported.set(merchant_id, [key_id]);
    else ids.push(key_id);
  }
  return [...imported].map(([merchantId, keyIds]) => ({
    ...{ action: 'keys.imported', merchantId, keyId: null, before: null, after: { keys: keyIds.length, keyIds } },
  }));
}

function stamps({ revision, now }: Change) {
  // `status_changed_at` is null (unknown), because the status might have been set earlier, in another system.
  return { created_revision: revision, revision, created_at: now, updated_at: now, status_changed_at: null };
}
