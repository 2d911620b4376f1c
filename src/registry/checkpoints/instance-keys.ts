import { isDeepStrictEqual } from 'node:util';
import type { Selectable } from '../../database/kysely.js';
import { InvalidNote, keyText, type NoteKey, parseKey } from '../../evidence/signed-note.js';
import { type Page, type Paging, rangeOf } from '../../rest/paging.js';
import { Refusal } from '../../rest/refusal.js';
import { type Author, registryAuthor } from '../events/author.js';
import { recordEvents } from '../events/repository.js';
import type { Action } from '../events/schema.js';
import { readHistory } from '../projection/history.js';
import type { RegistryDatabase } from '../registry-database.js';
import type { RegistryTables } from '../tables.js';
import type { InstanceKey } from './schema.js';

/**
 * State of an instance's public key, which verifies the checkpoints (signed states) of its access log:
 * - `counts`: it is pinned (stored as valid), and its period of validity includes the present;
 * - `unknown`: no key is pinned for its instance name;
 * - `other`: only other keys are pinned for its instance name;
 * - `ended`: it is pinned, but its period of validity has ended or has not begun.
 */
export type KeyState = 'counts' | 'unknown' | 'other' | 'ended';

/** Compares a key with the keys that are pinned (stored as valid) for its instance name. */
export async function keyStateOf(database: RegistryDatabase, key: NoteKey, now: number): Promise<KeyState> {
  const pinned = await database.selectFrom('instance_keys').selectAll().where('name', '=', key.name).execute();
  const own = pinned.find(({ public_key }) => public_key === keyText(key));
  if (own === undefined) return pinned.length === 0 ? 'unknown' : 'other';
  return own.counts_from <= now && (own.counts_to === null || now <= own.counts_to) ? 'counts' : 'ended';
}

/**
 * Pins (stores as valid) the first key of an instance name, and stores the event. The key is valid at once. It is
 * listed as unconfirmed until an administrator confirms it. Call this in a transaction.
 */
export async function pinFirst(
  database: RegistryDatabase,
  key: NoteKey,
  { now, from }: { readonly now: number; readonly from: number },
): Promise<void> {
  await database
    .insertInto('instance_keys')
    .values({
      ...{ public_key: keyText(key), name: key.name, pinned_at: now, pinned_by: 'registry', counts_from: from },
      ...{ counts_to: null, confirmed_at: null, confirmed_by: null },
    })
    .execute();
  const { revision } = await readHistory(database);
  const event = {
    ...{ action: 'instance-key.pinned' as const, merchantId: '', keyId: null, before: null },
    after: { name: key.name, publicKey: keyText(key) },
  };
  await recordEvents(database, [event], { at: now, author: registryAuthor, revision });
}

/** Returns one page of the instance keys, newest first. */
export async function listInstanceKeys(database: RegistryDatabase, paging: Paging): Promise<Page<InstanceKey>> {
  const { offset, limit } = rangeOf(paging);
  const all = database.selectFrom('instance_keys');
  const { total } = await all.select((it) => it.fn.countAll<number>().as('total')).executeTakeFirstOrThrow();
  const newest = all.selectAll().orderBy('pinned_at', 'desc').orderBy('public_key');
  const rows = await newest.offset(offset).limit(limit).execute();
  return { items: rows.map(shownKey), totalRecords: total };
}

/** The author and the time of a change to a key. */
interface KeyChange {
  readonly author: Author;
  readonly now: number;
}

/**
 * Pins (stores as valid) a further key for an instance name, for example before a gateway gets a new key. The key
 * counts as confirmed. If the key is already pinned, this function only confirms it.
 */
export async function pinKey(
  database: RegistryDatabase,
  text: string,
  { from, to }: { readonly from: number; readonly to: number | null },
  { author, now }: KeyChange,
): Promise<InstanceKey> {
  const key = readKey(text);
  const known = database.selectFrom('instance_keys').select('name').where('public_key', '=', keyText(key));
  if ((await known.executeTakeFirst()) !== undefined) return confirmKey(database, text, { author, now });
  return changed(database, 'instance-key.pinned', { author, now }, async (transaction) => {
    const row = {
      ...{ public_key: keyText(key), name: key.name, pinned_at: now, pinned_by: author.actor, counts_from: from },
      ...{ counts_to: to, confirmed_at: now, confirmed_by: author.actor },
    };
    await transaction.insertInto('instance_keys').values(row).execute();
    return { before: null, after: shownKey(row) };
  });
}

/**
 * Confirms that a key belongs to the gateway of its instance name. The registry pins (stores as valid) the first key of
 * a name without this check.
 */
export function confirmKey(database: RegistryDatabase, text: string, { author, now }: KeyChange): Promise<InstanceKey> {
  return changed(database, 'instance-key.confirmed', { author, now }, (transaction) =>
    update(transaction, text, ({ confirmed_at }) =>
      confirmed_at === null ? { confirmed_at: now, confirmed_by: author.actor } : null,
    ),
  );
}

/** Sets the end of a key's validity. The registry rejects checkpoints with this key that arrive after that time. */
export function endKey(
  database: RegistryDatabase,
  text: string,
  to: number,
  { author, now }: KeyChange,
): Promise<InstanceKey> {
  return changed(database, 'instance-key.ended', { author, now }, (transaction) =>
    update(transaction, text, () => ({ counts_to: to })),
  );
}

async function update(
  transaction: RegistryDatabase,
  text: string,
  changeOf: (row: Selectable<RegistryTables['instance_keys']>) => Partial<RegistryTables['instance_keys']> | null,
): Promise<{ readonly before: InstanceKey; readonly after: InstanceKey }> {
  const publicKey = keyText(readKey(text));
  const one = transaction.selectFrom('instance_keys').selectAll().where('public_key', '=', publicKey);
  const before = await one.executeTakeFirst();
  if (before === undefined) throw Refusal.notFound('Instance key');
  const change = changeOf(before);
  if (change === null) return { before: shownKey(before), after: shownKey(before) };
  await transaction.updateTable('instance_keys').set(change).where('public_key', '=', publicKey).execute();
  return { before: shownKey(before), after: shownKey(await one.executeTakeFirstOrThrow()) };
}

/** Changes a key and stores the event in one transaction. */
function changed(
  database: RegistryDatabase,
  action: Action,
  { author, now }: KeyChange,
  act: (transaction: RegistryDatabase) => Promise<{ readonly before: object | null; readonly after: InstanceKey }>,
): Promise<InstanceKey> {
  return database.transaction().execute(async (transaction) => {
    const { before, after } = await act(transaction);
    if (isDeepStrictEqual(before, after)) return after; // no change
    const { revision } = await readHistory(transaction);
    const event = { action, merchantId: '', keyId: null, before, after };
    await recordEvents(transaction, [event], { at: now, author, revision });
    return after;
  });
}

function readKey(text: string): NoteKey {
  try {
    const key = parseKey(text);
    if (key.purpose === 'note') return key;
  } catch (error) {
    if (!(error instanceof InvalidNote)) throw error;
  }
  throw Refusal.invalid([
    {
      path: 'publicKey',
      message: 'publicKey must be a public key as "merchant-gateway audit public-key" prints it',
    },
  ]);
}

function shownKey(row: Selectable<RegistryTables['instance_keys']>): InstanceKey {
  const { public_key: publicKey, name, pinned_by: pinnedBy, confirmed_by: confirmedBy } = row;
  const [from, pinnedAt] = [momentText(row.counts_from), momentText(row.pinned_at)];
  const [to, confirmedAt] = [row.counts_to, row.confirmed_at].map((at) => (at === null ? null : momentText(at)));
  return { name, publicKey, from, to: to ?? null, pinnedAt, pinnedBy, confirmedAt: confirmedAt ?? null, confirmedBy };
}

function momentText(at: number): string {
  return new Date(at).toISOString();
}
