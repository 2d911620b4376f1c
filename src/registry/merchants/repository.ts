import { type Guard, unguarded } from '../approvals/guard.js';
import type { Author } from '../events/author.js';
import type { Selectable } from '../../database/kysely.js';
import { rangeOf, type Page, type Paging } from '../../rest/paging.js';
import { Refusal } from '../../rest/refusal.js';
import { makeChange } from '../change.js';
import { hasPart, listIn, statusTimeOf } from '../fields.js';
import { newId, type RegistryContext } from '../registry-context.js';
import type { RegistryDatabase } from '../registry-database.js';
import { settle } from '../restores/settle.js';
import type { RegistryTables } from '../tables.js';
import { acceptAllowlists } from './allowlists.js';
import type { Merchant, MerchantChanges, NewMerchant } from './schema.js';

/** Filter of the merchant list. */
export interface MerchantFilter {
  /** Part of the name, case-insensitive. */
  readonly name?: string | undefined;
  readonly status?: string | undefined;
  /** The id of the only merchant to list; null or undefined: all merchants. */
  readonly id?: string | null;
}

/** Returns one page of the merchants that match the filter, newest first. */
export async function listMerchants(
  database: RegistryDatabase,
  { name, status, id = null }: MerchantFilter,
  paging: Paging,
): Promise<Page<Merchant>> {
  const { offset, limit } = rangeOf(paging);
  let wanted = database.selectFrom('merchants');
  if (id !== null) wanted = wanted.where('id', '=', id);
  if (status !== undefined) wanted = wanted.where('status', '=', status);
  if (name !== undefined) wanted = wanted.where(hasPart('name', name));
  const { total } = await wanted.select((it) => it.fn.countAll<number>().as('total')).executeTakeFirstOrThrow();
  const rows = await wanted
    .selectAll()
    .orderBy('created_revision', 'desc')
    // Sorts by id too: merchants of one import have the same revision (number of the change). Without a fixed order,
    // pages would repeat or skip merchants.
    .orderBy('id', 'desc')
    .offset(offset)
    .limit(limit)
    .execute();
  return { items: rows.map(toMerchant), totalRecords: total };
}

/**
 * Finds a merchant by its id.
 * @throws Refusal if the merchant does not exist
 */
export async function findMerchant(database: RegistryDatabase, id: string): Promise<Merchant> {
  const row = await database.selectFrom('merchants').selectAll().where('id', '=', id).executeTakeFirst();
  if (row === undefined) throw Refusal.notFound('Merchant');
  return toMerchant(row);
}

/**
 * Creates a merchant.
 * @throws Refusal for an invalid or unconfirmed allowlist
 * @throws ApprovalNeeded if the merchant would be live, and the approval rules require approval for this
 */
export function createMerchant(
  context: RegistryContext,
  author: Author,
  given: NewMerchant,
  guard: Guard = unguarded,
): Promise<Merchant> {
  const { name, status = 'ACTIVE', goLive = false, confirm, ...lists } = given;
  const { ipAllowlist = null, originAllowlist = null } = acceptAllowlists(lists, confirm);
  const settings: MerchantSettings = { name, status, goLive, ipAllowlist, originAllowlist };
  return makeChange(context, author, async (change) => {
    const { transaction, revision, now } = change;
    const rule = goLive ? 'goLive' : null;
    const id = newId('m', now, context.random);
    const proposal = {
      change: 'merchant.create',
      merchantId: '',
      subject: null,
      created: id,
      before: null,
      after: settings,
    } as const;
    const more = await guard(change, { ...proposal, rule });
    const row = await transaction
      .insertInto('merchants')
      .values({
        id,
        ...settingColumns(settings),
        ...{ created_revision: revision, revision, created_at: now, updated_at: now, status_changed_at: now },
      })
      .returningAll()
      .executeTakeFirstOrThrow();
    const result = toMerchant(row);
    const event = {
      action: 'merchant.created',
      merchantId: result.id,
      keyId: null,
      before: null,
      after: result,
    } as const;
    return { result, changed: { events: [event, ...more], records: [`merchant:${result.id}`] } };
  });
}

/**
 * A merchant, and as `revision` the number of the change that gateways have to acknowledge. Each request gets a new
 * revision. If no field has changed, `merchant.revision` is still the revision of an earlier change.
 */
export interface MerchantChange {
  readonly merchant: Merchant;
  readonly revision: number;
}

/**
 * Changes fields of a merchant. Writes the record to the gateways' store even if nothing changes: an operator may
 * repeat a suspension because a gateway has not applied the first one.
 * @throws Refusal if the merchant does not exist or has another revision, or if an allowlist is invalid or unconfirmed
 * @throws ApprovalNeeded if the merchant would go live, and the approval rules require approval for this
 */
export function changeMerchant(
  context: RegistryContext,
  author: Author,
  id: string,
  { confirm, revision: expected, ...given }: MerchantChanges,
  guard: Guard = unguarded,
): Promise<MerchantChange> {
  const changes: Partial<MerchantSettings> = { ...given, ...acceptAllowlists(given, confirm) };
  return makeChange<MerchantChange>(context, author, async (change) => {
    const { transaction, revision, now } = change;
    const before = await findMerchant(transaction, id);
    const records = [`merchant:${id}`];
    if (expected !== undefined && expected !== before.revision) {
      throw new Refusal(
        409,
        `Another request has changed the merchant (its revision is now ${before.revision}): read the merchant again, then repeat the change`,
      );
    }
    const names = settingNames.filter((name) => changes[name] !== undefined && !same(changes[name], before[name]));
    const shown = { before: only(before, settingNames), after: only({ ...before, ...changes }, settingNames) };
    const proposal = { change: 'merchant.change', merchantId: id, subject: id, ...shown } as const;
    const goesLive = names.includes('goLive') && changes.goLive === true;
    const more = await guard(change, { ...proposal, rule: goesLive ? 'goLive' : null });
    const decides = changes.status !== undefined || changes.goLive !== undefined;
    const wasHeldBack = decides && (await settle(change, id));
    if (names.length === 0 && !wasHeldBack)
      return { result: { merchant: before, revision }, changed: { events: more, records } };

    const row = await transaction
      .updateTable('merchants')
      .set({
        ...settingColumns({ ...before, ...changes }),
        ...{ revision, updated_at: now, ...(names.includes('status') ? { status_changed_at: now } : {}) },
      })
      .where('id', '=', id)
      .returningAll()
      .executeTakeFirstOrThrow();
    const merchant = toMerchant(row);
    // After a restore of the database, the registry can hold back (restrict) a merchant. A request that only confirms
    // this state changes no setting, but gets an event too.
    const noted = names.length > 0 ? names : settingNames.filter((name) => changes[name] !== undefined);
    const [was, is] = [only(before, noted), only(merchant, noted)];
    const event = { action: 'merchant.changed', merchantId: id, keyId: null, before: was, after: is } as const;
    return { result: { merchant, revision }, changed: { events: [event, ...more], records } };
  });
}

const settingNames = ['name', 'status', 'goLive', 'ipAllowlist', 'originAllowlist'] as const;

/** The fields of a merchant that clients set. */
export interface MerchantSettings {
  readonly name: string;
  readonly status: string;
  readonly goLive: boolean;
  readonly ipAllowlist: readonly string[] | null;
  readonly originAllowlist: readonly string[] | null;
}

/** Returns the columns of a merchant's settings. */
export function settingColumns({ name, status, goLive, ipAllowlist, originAllowlist }: MerchantSettings) {
  return {
    name,
    status,
    go_live: goLive ? 1 : 0,
    ip_allowlist: ipAllowlist === null ? null : JSON.stringify(ipAllowlist),
    origin_allowlist: originAllowlist === null ? null : JSON.stringify(originAllowlist),
  };
}

function same(one: unknown, other: unknown): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}

function only(merchant: MerchantSettings, names: readonly (keyof MerchantSettings)[]): object {
  return Object.fromEntries(names.map((name) => [name, merchant[name]]));
}

/** Converts a row to a merchant of the admin API. */
export function toMerchant(row: Selectable<RegistryTables['merchants']>): Merchant {
  return {
    id: row.id,
    name: row.name,
    status: row.status,
    goLive: row.go_live === 1,
    ipAllowlist: listIn(row.ip_allowlist),
    originAllowlist: listIn(row.origin_allowlist),
    revision: row.revision,
    createdAt: new Date(row.created_at).toISOString(),
    updatedAt: new Date(row.updated_at).toISOString(),
    statusChangedAt: statusTimeOf(row),
  };
}
