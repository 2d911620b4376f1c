import { isDeepStrictEqual } from 'node:util';
import type { Selectable } from '../../database/kysely.js';
import { InvalidNote, keyText, type NoteKey, parseKey } from '../../evidence/signed-note.js';
import { type Page, type Paging, rangeOf } from '../../rest/paging.js';
import { Refusal } from '../../rest/refusal.js';
import { type Change, makeUnpublishedChange, type UnpublishedOutcome } from '../change.js';
import { type Author, registryAuthor } from '../events/author.js';
import { recordEvents } from '../events/repository.js';
import type { Action } from '../events/schema.js';
import { readHistory } from '../projection/history.js';
import type { RegistryContext } from '../registry-context.js';
import type { RegistryDatabase } from '../registry-database.js';
import type { RegistryTables } from '../tables.js';
import type { InstanceKey } from './schema.js';

type Row = Selectable<RegistryTables['instance_keys']>;
type Context = Pick<RegistryContext, 'database' | 'clock'>;

/**
 * State of an instance's public key, which verifies the checkpoints (signed states) of the instance's access log. A
 * pinned key is a key that the registry stores as valid for an instance name. States:
 * - `counts`: the key is pinned, and its period of validity includes the present;
 * - `unknown`: no key is pinned for the instance name;
 * - `other`: only other keys are pinned for the instance name;
 * - `ended`: the key is pinned, but its period of validity has ended or has not begun.
 */
export type KeyState = 'counts' | 'unknown' | 'other' | 'ended';

/** Compares a key with the pinned keys of its instance name, and returns the state of the key. */
export async function keyStateOf(database: RegistryDatabase, key: NoteKey, now: number): Promise<KeyState> {
  const pinned = await database.selectFrom('instance_keys').selectAll().where('name', '=', key.name).execute();
  const own = pinned.find(({ public_key }) => public_key === keyText(key));
  if (own === undefined) return pinned.length === 0 ? 'unknown' : 'other';
  return own.counts_from <= now && (own.counts_to === null || now <= own.counts_to) ? 'counts' : 'ended';
}

/**
 * Pins the first key of an instance name, and stores the event. The key is valid at once, but is listed as unconfirmed
 * until an administrator confirms it. Call this in a transaction.
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

/**
 * Pins a further key for an instance name, for example before a gateway gets a new key. The key counts as confirmed. If
 * the key is already pinned, this function only confirms it.
 */
export function pinKey(
  context: Context,
  author: Author,
  text: string,
  { from, to }: { readonly from: number; readonly to: number | null },
): Promise<InstanceKey> {
  const key = readKey(text);
  return makeUnpublishedChange(context, author, async (change) => {
    const { transaction, now } = change;
    const row = {
      ...{ public_key: keyText(key), name: key.name, pinned_at: now, pinned_by: author.actor, counts_from: from },
      ...{ counts_to: to, confirmed_at: now, confirmed_by: author.actor },
    };
    const insert = transaction
      .insertInto('instance_keys')
      .values(row)
      .onConflict((conflict) => conflict.doNothing());
    const { numInsertedOrUpdatedRows } = await insert.executeTakeFirst();
    if (numInsertedOrUpdatedRows === 0n) return changeKey(change, key, ...confirmationBy(author));
    const result = shownKey(row);
    const event = { action: 'instance-key.pinned', merchantId: '', keyId: null, before: null, after: result } as const;
    return { result, events: [event] };
  });
}

/**
 * Stores that an administrator has confirmed that a key belongs to the gateway of its instance name. If the registry
 * itself pinned the key as the first one of a name, the key is unconfirmed until this call.
 */
export function confirmKey(context: Context, author: Author, text: string): Promise<InstanceKey> {
  const key = readKey(text);
  return makeUnpublishedChange(context, author, (change) => changeKey(change, key, ...confirmationBy(author)));
}

function confirmationBy({ actor }: Author): [Action, (row: Row, now: number) => Partial<Row>] {
  const changesOf = ({ confirmed_at }: Row, now: number): Partial<Row> =>
    confirmed_at === null ? { confirmed_at: now, confirmed_by: actor } : {};
  return ['instance-key.confirmed', changesOf];
}

/** Sets the end of a key's validity. The registry rejects checkpoints with this key that arrive after that time. */
export function endKey(context: Context, author: Author, text: string, to: number): Promise<InstanceKey> {
  const key = readKey(text);
  return makeUnpublishedChange(context, author, (change) =>
    changeKey(change, key, 'instance-key.ended', () => ({ counts_to: to })),
  );
}

/** @param changesOf returns the columns to set; without columns, nothing is changed */
async function changeKey(
  { transaction, now }: Change,
  key: NoteKey,
  action: Action,
  changesOf: (row: Row, now: number) => Partial<Row>,
): Promise<UnpublishedOutcome<InstanceKey>> {
  const publicKey = keyText(key);
  const one = transaction.selectFrom('instance_keys').selectAll().where('public_key', '=', publicKey);
  const row = await one.executeTakeFirst();
  if (row === undefined) throw Refusal.notFound('Instance key');
  const changes = changesOf(row, now);
  const [before, after] = [shownKey(row), shownKey({ ...row, ...changes })];
  if (isDeepStrictEqual(before, after)) return { result: after, events: [] };
  await transaction.updateTable('instance_keys').set(changes).where('public_key', '=', publicKey).execute();
  return { result: after, events: [{ action, merchantId: '', keyId: null, before, after }] };
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

function shownKey(row: Row): InstanceKey {
  const { public_key: publicKey, name, pinned_by: pinnedBy, confirmed_by: confirmedBy } = row;
  const [from, pinnedAt] = [momentText(row.counts_from), momentText(row.pinned_at)];
  const [to, confirmedAt] = [row.counts_to, row.confirmed_at].map((at) => (at === null ? null : momentText(at)));
  return { name, publicKey, from, to: to ?? null, pinnedAt, pinnedBy, confirmedAt: confirmedAt ?? null, confirmedBy };
}

function momentText(at: number): string {
  return new Date(at).toISOString();
}
