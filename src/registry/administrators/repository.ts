import type { Selectable } from '../../database/kysely.js';
import { type Page, type Paging, rangeOf } from '../../rest/paging.js';
import { Refusal } from '../../rest/refusal.js';
import { type Guard, type Proposal, unguarded } from '../approvals/guard.js';
import { makeUnpublishedChange } from '../change.js';
import type { Author } from '../events/author.js';
import { newId, type RegistryContext } from '../registry-context.js';
import type { RegistryDatabase } from '../registry-database.js';
import type { RegistryTables } from '../tables.js';
import { bootstrapName } from './caller.js';
import { endFormerAccess } from './former-access.js';
import { RefusedRight } from './refused-right.js';
import { roles as roleTable, type RoleName } from './roles.js';
import type { Static } from '../../typebox/typebox.js';
import type { Administrator, administratorChangesBody, newAdministratorBody } from './schema.js';

type Context = Pick<RegistryContext, 'database' | 'clock' | 'random'>;
type NewAdministrator = Static<typeof newAdministratorBody>;
type AdministratorChanges = Static<typeof administratorChangesBody>;

/** Maximum number of active members of a merchant. Only administrators of the platform can exceed it. */
const mostMembers = 500;

/** Filter of the list of administrators. */
export interface AdministratorFilter {
  readonly status?: string | undefined;
  readonly merchantId?: string | undefined;
}

/** Returns one page of the administrators that match the filter, sorted by name. */
export async function listAdministrators(
  database: RegistryDatabase,
  { status, merchantId }: AdministratorFilter,
  paging: Paging,
): Promise<Page<Administrator>> {
  const { offset, limit } = rangeOf(paging);
  let wanted = database.selectFrom('administrators');
  if (status !== undefined) wanted = wanted.where('status', '=', status as 'ACTIVE');
  if (merchantId !== undefined) wanted = wanted.where('merchant_id', '=', merchantId);
  const { total } = await wanted.select((it) => it.fn.countAll<number>().as('total')).executeTakeFirstOrThrow();
  const rows = await wanted.selectAll().orderBy('name').offset(offset).limit(limit).execute();
  return { items: rows.map(toAdministrator), totalRecords: total };
}

/**
 * Finds an administrator by id.
 * @param what the noun for the administrator in the error message, such as `Member`
 * @throws Refusal
 */
export async function findAdministrator(
  database: RegistryDatabase,
  id: string,
  what = 'Administrator',
): Promise<Administrator> {
  const row = await database.selectFrom('administrators').selectAll().where('id', '=', id).executeTakeFirst();
  if (row === undefined) throw Refusal.notFound(what);
  return toAdministrator(row);
}

/**
 * Creates an administrator. Members' roles require a merchant, and all other roles forbid a merchant.
 * @throws Refusal if the name is reserved or in use, if the OpenID identity is incomplete or in use, if the merchant
 *   does not exist, if the roles do not fit, or if a member adds too many members
 * @throws ApprovalNeeded if the administrator would be an owner, and the approval rules require approval for new owners
 */
export function createAdministrator(
  context: Context,
  author: Author,
  given: NewAdministrator,
  guard: Guard = unguarded,
): Promise<Administrator> {
  const { name, kind = 'person', roles, merchantId = null, issuer = null, subject = null } = given;
  requireFittingRoles(roles, merchantId);
  requireWholeIdentity(issuer, subject);
  return makeUnpublishedChange(context, author, async (change) => {
    const { transaction, now } = change;
    await requireUnused(transaction, { name, issuer, subject }, null, author);
    if (merchantId !== null) await requireMerchant(transaction, merchantId);
    await requireRoom(transaction, author);
    const after = { name, kind, status: 'ACTIVE', roles, issuer, subject };
    const id = newId('adm', now, context.random);
    const proposal = { change: 'administrator.create', merchantId: merchantId ?? '', subject: null } as const;
    const rule = await ownerRule(transaction, null, after);
    const more = await guard(change, { ...proposal, created: id, rule, before: null, after });
    const row = await transaction
      .insertInto('administrators')
      .values({
        ...{ id, name, kind, status: 'ACTIVE', roles: textOf(roles) },
        ...{ merchant_id: merchantId, issuer, subject, created_at: now, updated_at: now, version: 1 },
      })
      .returningAll()
      .executeTakeFirstOrThrow();
    const result = toAdministrator(row);
    const event = { action: 'administrator.created', merchantId: merchantId ?? '', keyId: null } as const;
    await noteOwners(transaction);
    return { result, events: [{ ...event, before: null, after: result }, ...more] };
  });
}

/**
 * Changes an administrator. This affects their tokens from the next request on: removed roles no longer count, and all
 * tokens of a disabled administrator are rejected. Enabling makes tokens valid again, but no session, link or sign-in.
 * The last owner can be disabled or lose the role only with the shared token. Members' roles require a merchant, and
 * all other roles forbid a merchant.
 * @throws Refusal if the administrator does not exist or has another version, or if the OpenID identity is incomplete
 *   or in use. Also if the roles do not fit, if the last owner would be removed without the shared token, or if a
 *   member enables too many members.
 * @throws ApprovalNeeded if the approval rules require approval for this change: the administrator would become an
 *   owner, or is an owner and would get another identity
 */
export function changeAdministrator(
  context: Context,
  author: Author,
  id: string,
  { version, ...changes }: AdministratorChanges,
  guard: Guard = unguarded,
): Promise<Administrator> {
  return makeUnpublishedChange(context, author, async (change) => {
    const { transaction, now } = change;
    const before = await findAdministrator(transaction, id);
    if (version !== undefined && version !== before.version) {
      throw new Refusal(
        409,
        `Another request has changed the administrator (its version is now ${before.version}): read the administrator again, then repeat the change`,
      );
    }
    const { status, roles, issuer, subject } = { ...before, ...changes };
    requireFittingRoles(roles, before.merchantId);
    requireWholeIdentity(issuer, subject);
    await requireUnused(transaction, { name: before.name, issuer, subject }, id);
    const isEnabled = status === 'ACTIVE' && before.status !== 'ACTIVE';
    if (isEnabled) await requireRoom(transaction, author);
    const isSame =
      status === before.status &&
      textOf(roles) === textOf(before.roles) &&
      issuer === before.issuer &&
      subject === before.subject;
    const shown = { before: shownOf(before), after: shownOf({ ...before, status, roles, issuer, subject }) };
    const rule = await ownerRule(transaction, before, shown.after);
    const proposal = { change: 'administrator.change', merchantId: before.merchantId ?? '', subject: id } as const;
    const more = await guard(change, { ...proposal, rule, ...shown });
    if (isSame) return { result: before, events: more };
    const staysOwner = status === 'ACTIVE' && roles.includes('owner');
    // The last owner can be removed only with the shared token of `registry.tokenFile`, which can always create another
    // owner.
    if (
      author.administratorId !== null &&
      before.roles.includes('owner') &&
      !staysOwner &&
      !(await hasOtherOwner(transaction, id))
    ) {
      throw new RefusedRight('another owner', new Refusal(409, 'This is the last owner: create another owner first'));
    }
    const row = await transaction
      .updateTable('administrators')
      .set((it) => ({
        ...{ status: status as 'ACTIVE', roles: textOf(roles), issuer, subject, updated_at: now },
        version: it('version', '+', 1),
      }))
      .where('id', '=', id)
      .returningAll()
      .executeTakeFirstOrThrow();
    if (isEnabled) await endFormerAccess(transaction, id, now);
    const after = toAdministrator(row);
    const event = { action: 'administrator.changed', merchantId: before.merchantId ?? '', keyId: null } as const;
    await noteOwners(transaction);
    return { result: after, events: [{ ...event, before, after }, ...more] };
  });
}

async function hasOtherOwner(database: RegistryDatabase, id: string): Promise<boolean> {
  const others = await activeOwners(database);
  return others.some((owner) => owner !== id);
}

/**
 * Whether an active owner exists. The shared token (`registry.tokenFile`), which has the role `owner`, does not count.
 */
export async function hasOwner(database: RegistryDatabase): Promise<boolean> {
  return (await activeOwners(database)).length > 0;
}

/** Returns the ids of the active owners. */
export async function activeOwners(database: RegistryDatabase): Promise<string[]> {
  const active = database.selectFrom('administrators').select('id').where('status', '=', 'ACTIVE');
  const rows = await active.where('roles', 'like', '%"owner"%').execute();
  return rows.map(({ id }) => id);
}

type Shown = Pick<Administrator, 'name' | 'kind' | 'status' | 'roles' | 'issuer' | 'subject'>;

function shownOf({ name, kind, status, roles, issuer, subject }: Shown): Shown {
  return { name, kind, status, roles, issuer, subject };
}

/**
 * Returns the approval rule for a change that makes an administrator an owner, or gives an owner another identity.
 * Returns null (no approval) for other changes. Also returns null until two owners have existed at the same time:
 * before that, there is no second owner who could approve.
 */
async function ownerRule(transaction: RegistryDatabase, before: Shown | null, after: Shown): Promise<Proposal['rule']> {
  const isOwner = (one: Shown | null): boolean =>
    one !== null && one.status === 'ACTIVE' && one.roles.includes('owner');
  const isSamePerson = before?.issuer === after.issuer && before.subject === after.subject;
  if (!isOwner(after) || (isOwner(before) && isSamePerson)) return null;
  const settings = await transaction.selectFrom('approval_settings').select('had_second_owner').executeTakeFirst();
  const isFirst = settings?.had_second_owner !== 1 && (await activeOwners(transaction)).length < 2;
  return isFirst ? null : 'owners';
}

/**
 * If two active owners exist, stores this fact. From then on, the approval rules apply to new owners, even if only one
 * owner is left later.
 */
export async function noteOwners(transaction: RegistryDatabase): Promise<void> {
  if ((await activeOwners(transaction)).length < 2) return;
  await transaction.updateTable('approval_settings').set({ had_second_owner: 1 }).execute();
}

function requireFittingRoles(roles: readonly string[], merchantId: string | null): void {
  const isMember = merchantId !== null;
  const wrong = roles.find((role) => roleTable[role as RoleName].isOfMember !== isMember);
  if (wrong === undefined) return;
  const message = isMember
    ? `${wrong} is a platform role: give a member of a merchant the role merchant-admin or merchant-viewer`
    : `${wrong} is a role for members of a merchant: merchantId is required`;
  throw Refusal.invalid([{ path: 'roles', message }]);
}

function requireWholeIdentity(issuer: string | null, subject: string | null): void {
  if ((issuer === null) === (subject === null)) return;
  const path = issuer === null ? 'issuer' : 'subject';
  throw Refusal.invalid([{ path, message: 'issuer and subject must be given together' }]);
}

async function requireMerchant(transaction: RegistryDatabase, id: string): Promise<void> {
  const merchant = await transaction.selectFrom('merchants').select('id').where('id', '=', id).executeTakeFirst();
  if (merchant === undefined) throw Refusal.invalid([{ path: 'merchantId', message: 'No merchant has this id' }]);
}

/**
 * If the author is a member of a merchant, requires that the merchant has fewer active members than the maximum.
 * Administrators of the platform can exceed the maximum.
 * @throws Refusal
 */
async function requireRoom(transaction: RegistryDatabase, { memberOf }: Author): Promise<void> {
  if (memberOf === undefined) return;
  const { total } = await transaction
    .selectFrom('administrators')
    .select((it) => it.fn.countAll<number>().as('total'))
    .where('merchant_id', '=', memberOf)
    .where('status', '=', 'ACTIVE')
    .executeTakeFirstOrThrow();
  if (total < mostMembers) return;
  throw new Refusal(
    409,
    `The merchant has ${total} active members, and only administrators of the platform can exceed the maximum of ${mostMembers}: disable members who are not needed any more`,
  );
}

async function requireUnused(
  transaction: RegistryDatabase,
  { name, issuer, subject }: { readonly name: string; readonly issuer: string | null; readonly subject: string | null },
  own: string | null,
  { memberOf }: Pick<Author, 'memberOf'> = {},
): Promise<void> {
  // Events use these actor names for callers without an administrator: the shared token, the registry itself, and an
  // unknown caller.
  const isReserved = [bootstrapName, 'registry', 'unknown'].includes(name.toLowerCase());
  const named = transaction.selectFrom('administrators').select('id').where('name', '=', name);
  if (isReserved || ((await named.executeTakeFirst())?.id ?? own) !== own) {
    const message = 'The name is reserved, or another administrator has it already: choose another name';
    const refusal = new Refusal(409, message);
    // A member could try names to learn who works for other merchants, so each attempt of a member has an event.
    throw memberOf === undefined ? refusal : new RefusedRight('an unused name', refusal);
  }
  if (issuer === null || subject === null) return;
  const known = transaction
    .selectFrom('administrators')
    .select('id')
    .where('issuer', '=', issuer)
    .where('subject', '=', subject);
  if (((await known.executeTakeFirst())?.id ?? own) !== own) {
    throw new Refusal(409, 'Another administrator has this issuer and subject: correct issuer or subject');
  }
}

function textOf(roles: readonly string[]): string {
  return JSON.stringify([...new Set(roles)]);
}

function toAdministrator(row: Selectable<RegistryTables['administrators']>): Administrator {
  return {
    ...{ id: row.id, name: row.name, kind: row.kind, status: row.status, roles: JSON.parse(row.roles) as string[] },
    ...{ merchantId: row.merchant_id, issuer: row.issuer, subject: row.subject },
    ...{ createdAt: new Date(row.created_at).toISOString(), updatedAt: new Date(row.updated_at).toISOString() },
    version: row.version,
  };
}
