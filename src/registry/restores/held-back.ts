import { rangeOf, type Page, type Paging } from '../../rest/paging.js';
import { Refusal } from '../../rest/refusal.js';
import { makeChange, type Change, type Outcome } from '../change.js';
import type { NewEvent } from '../events/repository.js';
import { toApiKey, type StoredKey } from '../keys/repository.js';
import { toMerchant } from '../merchants/repository.js';
import type { StoreEntry } from '../../gateway/store-ports.js';
import type { RegistryContext } from '../registry-context.js';
import type { RegistryDatabase } from '../registry-database.js';
import { endOf, laterRecords, type LaterKey, type LaterMerchant } from './later-records.js';
import type { HeldBack } from './schema.js';

type ChangeContext = Pick<RegistryContext, 'database' | 'clock' | 'onChange'>;

/** A status as the admin API takes it. */
const statusForm = /^[A-Z][A-Z_]{0,31}$/;
/** In whose name the registry acts by itself. */
const registryActor = 'registry';

/**
 * Keeps inactive what somebody knows as inactive under a later revision than this database, which was restored from a backup:
 * otherwise every key would be valid again that was revoked since. An operator lifts each one.
 * @param entries records as somebody has them
 * @param source who has them: `store`, or the instance id of a gateway
 * @param uncompared up to which number changes may have been made before anybody compared the database; 0: none were
 * @returns how many are held back that were not before
 */
export async function holdBack(
  context: ChangeContext,
  entries: readonly StoreEntry[],
  source: string,
  uncompared = 0,
): Promise<number> {
  const found = await laterRecords(context.database, entries, uncompared);
  if (found.keys.length + found.merchants.length === 0) return 0;
  return makeChange(context, registryActor, async (change) => {
    const { transaction } = change;
    // Read again: it may have been changed meanwhile.
    const { keys, merchants } = await laterRecords(transaction, entries, uncompared);
    const events: NewEvent[] = [];
    const records: string[] = [];
    for (const later of keys) {
      events.push(await holdKey(change, later, source));
      records.push(`key:${later.row.lookup_id}`);
    }
    for (const later of merchants) {
      events.push(await holdMerchant(change, later, source));
      records.push(`merchant:${later.row.id}`);
    }
    return { result: events.length, changed: events.length === 0 ? null : { events, records } };
  });
}

/** What is held back, newest first. */
export async function listHeldBack(database: RegistryDatabase, paging: Paging): Promise<Page<HeldBack>> {
  const { offset, limit } = rangeOf(paging);
  const held = database.selectFrom('held_back');
  const { total } = await held.select((it) => it.fn.countAll<number>().as('total')).executeTakeFirstOrThrow();
  const rows = await held
    .selectAll()
    .orderBy('found_at', 'desc')
    .orderBy('id', 'desc')
    .offset(offset)
    .limit(limit)
    .execute();
  const items = rows.map(({ id, kind, merchant_id, source, found_at }) => ({
    ...{ id, ...named(kind, id), merchantId: merchant_id, source, foundAt: new Date(found_at).toISOString() },
  }));
  return { items, totalRecords: total };
}

function named(kind: HeldBack['kind'], id: string): Pick<HeldBack, 'kind' | 'keyId'> {
  return { kind, keyId: kind === 'key' ? id : null };
}

/** What was lifted, and of which change gateways have to know. */
export interface Lifted {
  readonly held: Pick<HeldBack, 'id' | 'keyId' | 'kind' | 'merchantId'>;
  readonly revision: number;
}

/**
 * Gives a key or a merchant back what the restored database says of it.
 * @throws Refusal where it is not held back
 */
export function lift(context: ChangeContext, actor: string, id: string): Promise<Lifted> {
  return makeChange(context, actor, async (change): Promise<Outcome<Lifted>> => {
    const { transaction, revision, now } = change;
    const row = await transaction.selectFrom('held_back').selectAll().where('id', '=', id).executeTakeFirst();
    if (row === undefined) throw Refusal.notFound('Record that is held back');
    await transaction.deleteFrom('held_back').where('id', '=', id).execute();
    const { kind, merchant_id: merchantId } = row;
    const set = { ...(JSON.parse(row.was) as Record<string, number | string | null>), revision, updated_at: now };
    const result = { held: { id, ...named(kind, id), merchantId }, revision };
    if (kind === 'merchant') {
      const before = await transaction
        .selectFrom('merchants')
        .selectAll()
        .where('id', '=', id)
        .executeTakeFirstOrThrow();
      const after = await transaction
        .updateTable('merchants')
        .set(set)
        .where('id', '=', id)
        .returningAll()
        .executeTakeFirstOrThrow();
      const event = { action: 'merchant.lifted', merchantId, keyId: null } as const;
      const events = [{ ...event, before: toMerchant(before), after: toMerchant(after) }];
      return { result, changed: { events, records: [`merchant:${id}`] } };
    }
    const before = await transaction
      .selectFrom('api_keys')
      .selectAll()
      .where('key_id', '=', id)
      .executeTakeFirstOrThrow();
    const after = await transaction
      .updateTable('api_keys')
      .set(set)
      .where('key_id', '=', id)
      .returningAll()
      .executeTakeFirstOrThrow();
    const event = { action: 'key.lifted', merchantId, keyId: id } as const;
    const events = [{ ...event, before: toApiKey(before), after: toApiKey(after) }];
    return { result, changed: { events, records: [`key:${after.lookup_id}`] } };
  });
}

async function holdKey(change: Change, { row, record }: LaterKey, source: string): Promise<NewEvent> {
  const { transaction, revision, now } = change;
  const { key_id, merchant_id, status, expires_at } = row;
  const ends = Math.min(endOf(record.expiresAt), expires_at ?? Infinity);
  const after: StoredKey = await transaction
    .updateTable('api_keys')
    .set({
      ...{ status: heldStatus(record.status, status), expires_at: ends === Infinity ? null : ends },
      ...{ revision, updated_at: now },
    })
    .where('key_id', '=', key_id)
    .returningAll()
    .executeTakeFirstOrThrow();
  await note(change, { id: key_id, kind: 'key', merchantId: merchant_id, source, was: { status, expires_at } });
  const [was, is] = [toApiKey(row), toApiKey(after)];
  return { action: 'key.held-back', merchantId: merchant_id, keyId: key_id, before: was, after: is };
}

async function holdMerchant(change: Change, { row, record }: LaterMerchant, source: string): Promise<NewEvent> {
  const { transaction, revision, now } = change;
  const { id, status, go_live } = row;
  const after = await transaction
    .updateTable('merchants')
    .set({
      ...{ status: heldStatus(record.status, status), go_live: record.goLive ? go_live : 0 },
      ...{ revision, updated_at: now },
    })
    .where('id', '=', id)
    .returningAll()
    .executeTakeFirstOrThrow();
  await note(change, { id, kind: 'merchant', merchantId: id, source, was: { status, go_live } });
  return {
    action: 'merchant.held-back',
    merchantId: id,
    keyId: null,
    before: toMerchant(row),
    after: toMerchant(after),
  };
}

/** The status to keep. A damaged record may have one that the database refuses, and the comparison would fail without end. */
function heldStatus(known: string, own: string): string {
  if (known === 'ACTIVE') return own;
  return statusForm.test(known) ? known : 'INACTIVE';
}

async function note(
  { transaction, now }: Change,
  { merchantId, was, ...one }: Pick<HeldBack, 'id' | 'kind' | 'merchantId' | 'source'> & { readonly was: object },
): Promise<void> {
  await transaction
    .insertInto('held_back')
    .values({ ...one, merchant_id: merchantId, was: JSON.stringify(was), found_at: now })
    // What the first restored database said is what is given back.
    .onConflict((conflict) => conflict.column('id').doNothing())
    .execute();
}
