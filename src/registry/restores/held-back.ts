import { type Author, registryAuthor } from '../events/author.js';
import { rangeOf, type Page, type Paging } from '../../rest/paging.js';
import { Refusal } from '../../rest/refusal.js';
import { makeChange, type Change, type Outcome } from '../change.js';
import { rulesIn } from '../approvals/guard.js';
import type { NewEvent } from '../events/repository.js';
import { toApiKey, type StoredKey } from '../keys/repository.js';
import { toMerchant } from '../merchants/repository.js';
import type { StoreEntry } from '../../gateway/store-ports.js';
import type { RegistryContext } from '../registry-context.js';
import type { RegistryDatabase } from '../registry-database.js';
import { endOf, laterRecords, type LaterKey, type LaterMerchant } from './later-records.js';
import type { HeldBack } from './schema.js';

type ChangeContext = Pick<RegistryContext, 'database' | 'clock' | 'onChange'>;

/** Dependencies of `holdBack`. */
export interface HoldBackContext extends ChangeContext {
  /**
   * The `seq` (number) of a restore of the database. If `holdBack` restricts a record, it marks this restore as
   * certain, because the source of the record has a change that the database lacks. Omitted or undefined: no restore is
   * marked.
   */
  readonly restore?: number | undefined;
}

/** The format of a status in the admin API. */
const statusForm = /^[A-Z][A-Z_]{0,31}$/;

/**
 * A database that was restored from a backup lacks later revocations, so revoked keys would be valid again. To prevent
 * this, compares the records of a source (the store or a gateway) with the database. Holds back each key and merchant
 * that has fewer rights in the source, because of a change that the database lacks (see `laterRecords`). A held-back
 * record gets the restrictions of the source: its status, its earlier expiry, `goLive: false`. The restrictions stay
 * until an operator removes ("lifts") them.
 * @param entries the records in the source
 * @param source `store`, or the instance id of a gateway
 * @param uncompared the highest revision (number of a change) that could stand for different changes in the source and
 *   in the database; 0 if there is no such revision (see `laterRecords`)
 * @returns the number of newly held-back records
 */
export async function holdBack(
  context: HoldBackContext,
  entries: readonly StoreEntry[],
  source: string,
  uncompared = 0,
): Promise<number> {
  const found = await laterRecords(context.database, entries, uncompared);
  if (found.keys.length + found.merchants.length === 0) return 0;
  return makeChange(context, registryAuthor, async (change) => {
    const { transaction } = change;
    // Reads the rows of the database again in the transaction: they might have changed since the first read.
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
    if (context.restore !== undefined && events.length > 0)
      await transaction.updateTable('restores').set({ is_certain: 1 }).where('seq', '=', context.restore).execute();
    return { result: events.length, changed: events.length === 0 ? null : { events, records } };
  });
}

/** Returns one page of the keys and merchants that stay restricted after a restore, newest first. */
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

/**
 * A record whose restrictions an operator has removed. `revision` is the number of the change that removed the
 * restrictions. Gateways have to acknowledge (confirm) that change.
 */
export interface Lifted {
  readonly held: Pick<HeldBack, 'id' | 'keyId' | 'kind' | 'merchantId'>;
  readonly revision: number;
}

/**
 * Removes the restrictions of a key or merchant that the registry held back after a restore. Gives the key or
 * merchant the state that it had in the restored database.
 * @throws Refusal if the record is not held back. Also if the merchant would go live and the approval rules require
 *   approval for this
 */
export function lift(context: ChangeContext, author: Author, id: string): Promise<Lifted> {
  return makeChange(context, author, async (change): Promise<Outcome<Lifted>> => {
    const { transaction, revision, now } = change;
    const row = await transaction.selectFrom('held_back').selectAll().where('id', '=', id).executeTakeFirst();
    if (row === undefined) throw Refusal.notFound('Held-back record');
    await transaction.deleteFrom('held_back').where('id', '=', id).execute();
    const { kind, merchant_id: merchantId } = row;
    const was = JSON.parse(row.was) as Record<string, number | string | null> & {
      readonly status: string;
      readonly go_live?: number;
    };
    const result = { held: { id, ...named(kind, id), merchantId }, revision };
    if (kind === 'merchant') {
      const before = await transaction
        .selectFrom('merchants')
        .selectAll()
        .where('id', '=', id)
        .executeTakeFirstOrThrow();
      if (before.go_live === 0 && was.go_live === 1 && (await rulesIn(transaction)).goLive) {
        throw new Refusal(
          409,
          `The merchant ${id} would go live, which needs approval: run "merchant-gateway merchants set ${id} --status ${was.status} --go-live" instead`,
          [],
          'approval_required',
        );
      }
      const after = await transaction
        .updateTable('merchants')
        .set({ ...was, revision, updated_at: now, ...statusChange(before, was.status, change) })
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
      .set({ ...was, revision, updated_at: now, ...statusChange(before, was.status, change) })
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
  const held = heldStatus(record.status, status);
  const after: StoredKey = await transaction
    .updateTable('api_keys')
    .set({
      ...{ status: held, expires_at: ends === Infinity ? null : ends },
      ...{ revision, updated_at: now, ...statusChange(row, held, change) },
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
  const held = heldStatus(record.status, status);
  const after = await transaction
    .updateTable('merchants')
    .set({
      ...{ status: held, go_live: record.goLive ? go_live : 0 },
      ...{ revision, updated_at: now, ...statusChange(row, held, change) },
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

/**
 * Returns the status to store: the status in the source, or the database's own status if the source has ACTIVE.
 * `INACTIVE` replaces a malformed status in the source. A database rejects some malformed statuses, such as a text with
 * a NUL character, and the error would stop the comparison.
 */
function heldStatus(known: string, own: string): string {
  if (known === 'ACTIVE') return own;
  return statusForm.test(known) ? known : 'INACTIVE';
}

/**
 * Returns the column `status_changed_at` with the time of this change. If the status stays the same, returns no column,
 * so that the update keeps the stored time.
 */
function statusChange(
  before: { readonly status: string },
  status: string,
  { now }: Change,
): { status_changed_at?: number } {
  return status === before.status ? {} : { status_changed_at: now };
}

async function note(
  { transaction, now }: Change,
  { merchantId, was, ...one }: Pick<HeldBack, 'id' | 'kind' | 'merchantId' | 'source'> & { readonly was: object },
): Promise<void> {
  await transaction
    .insertInto('held_back')
    .values({ ...one, merchant_id: merchantId, was: JSON.stringify(was), found_at: now })
    // If the record is already held back, keeps the stored state. `lift` then returns the record to its state before it
    // was first restricted.
    .onConflict((conflict) => conflict.column('id').doNothing())
    .execute();
}
