import type { Selectable } from '../../database/kysely.js';
import { parseIpRange } from '../../policy/ip-ranges.js';
import { type Page, type Paging, rangeOf } from '../../rest/paging.js';
import { Refusal } from '../../rest/refusal.js';
import { makeUnpublishedChange } from '../change.js';
import type { Author } from '../events/author.js';
import { newId, type RegistryContext } from '../registry-context.js';
import type { RegistryDatabase } from '../registry-database.js';
import type { RegistryTables } from '../tables.js';
import type { Static } from '../../typebox/typebox.js';
import { type Caller, listIn } from './caller.js';
import { findAdministrator } from './repository.js';
import { RefusedRight } from './refused-right.js';
import { permits } from './roles.js';
import type { AdministratorToken, newTokenBody } from './schema.js';
import { digestOf, newToken } from './token-text.js';

type Context = Pick<RegistryContext, 'database' | 'clock' | 'random'>;

const defaultLifeSeconds = 90 * 24 * 60 * 60;
/** How long before a token's expiry the responses begin to announce it, in milliseconds. */
export const announcedMilliseconds = 14 * 24 * 60 * 60 * 1000;
/** Limit of the valid tokens of one administrator. */
const mostTokens = 50;

/** A new token with its secret text, which is returned only when the token is created. */
export interface CreatedToken extends AdministratorToken {
  readonly token: string;
}

/**
 * Creates a token for the caller, or for another administrator if the caller is allowed to change administrators.
 * @throws Refusal
 */
export function createToken(
  context: Context,
  author: Author,
  caller: Caller,
  given: Static<typeof newTokenBody>,
): Promise<CreatedToken> {
  const { name, sources = caller.sources, expiresInSeconds = defaultLifeSeconds } = given;
  const owner = ownerOf(caller, given.administratorId);
  const wrong = (sources ?? []).findIndex((source) => parseIpRange(source) === null);
  if (wrong !== -1) {
    throw Refusal.invalid([
      { path: `sources[${wrong}]`, message: `sources[${wrong}] must be an IP address or a CIDR` },
    ]);
  }
  // A token that is limited to certain addresses must not create a token that is valid from other addresses.
  const more = (sources ?? []).find((source) => caller.sources?.includes(source) === false);
  if (more !== undefined) {
    const problem = {
      path: 'sources',
      message: `${more} is not among the sources (allowed addresses) of your own token`,
    };
    throw new RefusedRight(`the source ${more}`, Refusal.invalid([problem]));
  }
  return makeUnpublishedChange(context, author, async ({ transaction, now }) => {
    const administrator = await findAdministrator(transaction, owner);
    if (administrator.status !== 'ACTIVE') throw new Refusal(409, 'The administrator is disabled');
    // A caller must not create a token of their own with more roles than the credential of the request has.
    const isOwn = owner === caller.administratorId;
    const available = isOwn ? caller.roles : administrator.roles;
    const roles = given.roles ?? (isOwn ? caller.tokenRoles : null);
    const missing = roles?.find((role) => !available.includes(role));
    if (missing !== undefined) {
      const whose = isOwn ? 'the token or session that you use' : 'the administrator';
      const problem = { path: 'roles', message: `${missing} is not among the roles of ${whose}` };
      throw new RefusedRight(`the role ${missing}`, Refusal.invalid([problem]));
    }
    await requireRoom(transaction, owner, now);
    const token = newToken(context.random);
    const row = await transaction
      .insertInto('administrator_tokens')
      .values({
        ...{ id: newId('tok', now, context.random), administrator_id: owner, kind: 'token', name },
        issued_by: isOwn ? caller.issuedBy : (caller.issuedBy ?? caller.administratorId),
        ...{ digest: digestOf(token), roles: roles === null ? null : JSON.stringify([...new Set(roles)]) },
        ...{ sources: sources === null ? null : JSON.stringify(sources), created_at: now },
        ...{ expires_at: now + expiresInSeconds * 1000, revoked_at: null, last_used_at: null, last_source: null },
      })
      .returningAll()
      .executeTakeFirstOrThrow();
    const after = toToken(row);
    const event = { action: 'token.created', merchantId: administrator.merchantId ?? '', keyId: null } as const;
    return { result: { ...after, token }, events: [{ ...event, before: null, after }] };
  });
}

/** Revokes a token of the caller, or any token if the caller is allowed to change administrators. @throws Refusal */
export function revokeToken(context: Context, author: Author, caller: Caller, id: string): Promise<AdministratorToken> {
  return makeUnpublishedChange(context, author, async ({ transaction, now }) => {
    const one = transaction.selectFrom('administrator_tokens').selectAll().where('id', '=', id);
    const row = await one.executeTakeFirst();
    if (row === undefined) throw Refusal.notFound('Token');
    if (!mayRevoke(caller, row.administrator_id))
      throw new RefusedRight('administrators:write', Refusal.notFound('Token'));
    const before = toToken(row);
    if (row.revoked_at !== null) return { result: before, events: [] };
    await transaction.updateTable('administrator_tokens').set({ revoked_at: now }).where('id', '=', id).execute();
    const { merchantId } = await findAdministrator(transaction, row.administrator_id);
    const after = toToken(await one.executeTakeFirstOrThrow());
    const event = { action: 'token.revoked', merchantId: merchantId ?? '', keyId: null } as const;
    return { result: after, events: [{ ...event, before, after }] };
  });
}

function mayRevoke(caller: Caller, owner: string): boolean {
  return owner === caller.administratorId || permits(caller.roles, 'administrators:write');
}

/** Returns one page of the tokens of the caller, or of another administrator, newest first. @throws Refusal */
export async function listTokens(
  database: RegistryDatabase,
  caller: Caller,
  administratorId: string | undefined,
  paging: Paging,
): Promise<Page<AdministratorToken>> {
  const isOther = administratorId !== undefined && administratorId !== caller.administratorId;
  if (isOther && !permits(caller.roles, 'administrators:read'))
    throw new RefusedRight('administrators:read', Refusal.notFound('Administrator'));
  const owner = administratorId ?? caller.administratorId;
  const { offset, limit } = rangeOf(paging);
  let wanted = database.selectFrom('administrator_tokens');
  // A caller with the shared token (`registry.tokenFile`) has no tokens of their own. This caller acts as an owner, and
  // so sees the tokens of all administrators.
  if (owner !== null) wanted = wanted.where('administrator_id', '=', owner);
  const { total } = await wanted.select((it) => it.fn.countAll<number>().as('total')).executeTakeFirstOrThrow();
  const sorted = wanted.selectAll().orderBy('created_at', 'desc').orderBy('id', 'desc');
  const rows = await sorted.offset(offset).limit(limit).execute();
  return { items: rows.map(toToken), totalRecords: total };
}

/**
 * Counts the valid tokens that expire soon and belong to active administrators. Omits tokens of sign-ins, because these
 * always expire soon.
 */
export async function countExpiring(database: RegistryDatabase, now: number): Promise<number> {
  const { total } = await database
    .selectFrom('administrator_tokens as token')
    .innerJoin('administrators as owner', 'owner.id', 'token.administrator_id')
    .select((it) => it.fn.countAll<number>().as('total'))
    .where('owner.status', '=', 'ACTIVE')
    .where('token.kind', '=', 'token')
    .where('token.revoked_at', 'is', null)
    .where('token.expires_at', '>', now)
    .where('token.expires_at', '<', now + announcedMilliseconds)
    .executeTakeFirstOrThrow();
  return total;
}

function ownerOf(caller: Caller, wanted: string | undefined): string {
  if (wanted !== undefined && wanted !== caller.administratorId) {
    if (permits(caller.roles, 'administrators:write')) return wanted;
    throw new RefusedRight('administrators:write', Refusal.notFound('Administrator'));
  }
  if (caller.administratorId !== null) return caller.administratorId;
  throw Refusal.invalid([{ path: 'administratorId', message: 'administratorId is required with the shared token' }]);
}

async function requireRoom(transaction: RegistryDatabase, owner: string, now: number): Promise<void> {
  const { total } = await transaction
    .selectFrom('administrator_tokens')
    .select((it) => it.fn.countAll<number>().as('total'))
    .where('administrator_id', '=', owner)
    .where('kind', '=', 'token')
    .where('revoked_at', 'is', null)
    .where('expires_at', '>', now)
    .executeTakeFirstOrThrow();
  if (total >= mostTokens) {
    throw new Refusal(409, `The administrator has ${mostTokens} valid tokens: revoke one that is not needed any more`);
  }
}

function toToken(row: Selectable<RegistryTables['administrator_tokens']>): AdministratorToken {
  const at = (moment: number | null): string | null => (moment === null ? null : new Date(moment).toISOString());
  return {
    ...{ id: row.id, administratorId: row.administrator_id, name: row.name, kind: row.kind },
    ...{ roles: listIn(row.roles), sources: listIn(row.sources) },
    ...{ createdAt: new Date(row.created_at).toISOString(), expiresAt: new Date(row.expires_at).toISOString() },
    ...{ revokedAt: at(row.revoked_at), lastUsedAt: at(row.last_used_at), lastSource: row.last_source },
  };
}
