import type { Selectable } from '../../database/kysely.js';
import { parseIpRange } from '../../policy/ip-ranges.js';
import { type Page, type Paging, rangeOf } from '../../rest/paging.js';
import { Refusal } from '../../rest/refusal.js';
import { makeUnpublishedChange } from '../change.js';
import type { Author } from '../events/author.js';
import { listIn } from '../fields.js';
import { newId, type RegistryContext } from '../registry-context.js';
import type { RegistryDatabase } from '../registry-database.js';
import type { RegistryTables } from '../tables.js';
import type { Static } from '../../typebox/typebox.js';
import { type Caller, issuerColumns } from './caller.js';
import { findAdministrator } from './repository.js';
import { RefusedRight, requireRightOverOthers } from './refused-right.js';
import type { AdministratorToken, newTokenBody } from './schema.js';
import { digestOf, newToken } from './token-text.js';

type Context = Pick<RegistryContext, 'database' | 'clock' | 'random' | 'reasonFor'>;

const defaultLifeSeconds = 90 * 24 * 60 * 60;
/** Responses announce the expiry of a token from this many milliseconds before the expiry. */
export const announcedMilliseconds = 14 * 24 * 60 * 60 * 1000;
/** Maximum number of valid tokens of one administrator, not counting the session tokens of sign-ins. */
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
  const owner = ownerOf(context, author, caller, given.administratorId);
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
    throw new RefusedRight(`a token that is valid from ${more}`, Refusal.invalid([problem]));
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
      throw new RefusedRight(`a token with the role ${missing}`, Refusal.invalid([problem]));
    }
    await requireRoom(transaction, owner, now);
    const token = newToken(context.random);
    const row = await transaction
      .insertInto('administrator_tokens')
      .values({
        ...{ id: newId('tok', now, context.random), administrator_id: owner, kind: 'token', name },
        ...issuerColumns(caller, owner),
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

/**
 * Revokes a token of the caller, or any token if the caller is allowed to change administrators. If the token belongs
 * to a sign-in, ends the sign-in too: a refresh would replace the revoked token.
 * @throws Refusal
 */
export function revokeToken(context: Context, author: Author, caller: Caller, id: string): Promise<AdministratorToken> {
  return makeUnpublishedChange(context, author, async ({ transaction, now }) => {
    const one = transaction.selectFrom('administrator_tokens').selectAll().where('id', '=', id);
    const row = await one.executeTakeFirst();
    if (row === undefined) throw Refusal.notFound('Token');
    if (row.administrator_id !== caller.administratorId)
      requireRightOverOthers(context, caller, () => author, Refusal.notFound('Token'));
    const before = toToken(row);
    if (row.revoked_at !== null) {
      await requireNotReplaced(transaction, row, now);
      return { result: before, events: [] };
    }
    await transaction.updateTable('administrator_tokens').set({ revoked_at: now }).where('id', '=', id).execute();
    const ended = transaction.updateTable('sign_ins').set({ status: 'ENDED', sealed: null });
    if (row.kind === 'session') await ended.where('token_id', '=', id).execute();
    const { merchantId } = await findAdministrator(transaction, row.administrator_id);
    const after = toToken(await one.executeTakeFirstOrThrow());
    const event = { action: 'token.revoked', merchantId: merchantId ?? '', keyId: null } as const;
    return { result: after, events: [{ ...event, before, after }] };
  });
}

/**
 * Called for a token that is already revoked. If a sign-in issued the token, requires that the administrator has no
 * active sign-in. A refresh may have replaced the token with a newer one, which stays valid. So a success could wrongly
 * suggest that the sign-in has ended.
 * @throws Refusal 409 with the tokens to revoke
 */
async function requireNotReplaced(
  transaction: RegistryDatabase,
  { kind, administrator_id }: Pick<Selectable<RegistryTables['administrator_tokens']>, 'kind' | 'administrator_id'>,
  now: number,
): Promise<void> {
  if (kind !== 'session') return;
  const active = transaction.selectFrom('sign_ins').select('token_id').where('status', '=', 'ACTIVE');
  const own = active.where('administrator_id', '=', administrator_id).where('expires_at', '>', now);
  const rows = await own.orderBy('created_at').execute();
  if (rows.length === 0) return;
  const current = rows.map(({ token_id }) => token_id).join(', ');
  const next =
    rows.length === 1
      ? `The token of this administrator's active sign-in is ${current}: revoke it to end this sign-in`
      : `The tokens of this administrator's active sign-ins are ${current}: revoke them to end all of these sign-ins`;
  throw new Refusal(
    409,
    `This token is already revoked. If a refresh replaced it, its sign-in may still be active with a newer token. ${next}`,
  );
}

/** Returns one page of the tokens of the caller, or of another administrator, newest first. @throws Refusal */
export async function listTokens(
  context: Context,
  authorOf: () => Author,
  caller: Caller,
  administratorId: string | undefined,
  paging: Paging,
): Promise<Page<AdministratorToken>> {
  const owner = administratorId ?? caller.administratorId;
  if (owner === null || owner !== caller.administratorId)
    requireRightOverOthers(context, caller, authorOf, Refusal.notFound('Administrator'), 'administrators:read');
  const { offset, limit } = rangeOf(paging);
  let wanted = context.database.selectFrom('administrator_tokens');
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

function ownerOf(context: Context, author: Author, caller: Caller, wanted: string | undefined): string {
  if (wanted !== undefined && wanted !== caller.administratorId) {
    requireRightOverOthers(context, caller, () => author, Refusal.notFound('Administrator'));
    return wanted;
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
    throw new Refusal(
      409,
      `The administrator has ${mostTokens} valid tokens, the maximum: revoke one that is not needed any more`,
    );
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
