import { Refusal } from '../../rest/refusal.js';
import { type Caller, issuerColumns, issuersIn } from '../administrators/caller.js';
import { activeOwners, findAdministrator } from '../administrators/repository.js';
import { requireRightOverOthers } from '../administrators/refused-right.js';
import type { Administrator } from '../administrators/schema.js';
import { digestOf } from '../administrators/token-text.js';
import { makeUnpublishedChange } from '../change.js';
import type { Author } from '../events/author.js';
import { newId, type RegistryContext } from '../registry-context.js';
import type { RegistryDatabase } from '../registry-database.js';
import { signInOf } from '../sign-in/queries.js';
import type { ConsoleLink } from './schema.js';
import { type NewSession, newSecret, type Opening, openSession } from './sessions.js';

type Context = Pick<RegistryContext, 'database' | 'clock' | 'random' | 'reasonFor'>;

const linkMilliseconds = 10 * 60_000;
/**
 * How long the link of a merchant's member is valid at most, in milliseconds. The time is long, because the member gets
 * the link by mail.
 */
const memberLinkMilliseconds = 24 * 60 * 60_000;
/**
 * Maximum number of unexpired links of one administrator. Used links count too, so the maximum also limits how fast an
 * administrator can open sessions with links.
 */
const mostLinks = 20;
const keptMilliseconds = 24 * 60 * 60_000;

/**
 * Creates a link that signs an administrator in once. The session that the link opens is limited to the addresses of
 * the caller's credential. The link and the session end when the caller's token expires or is revoked. If the token is
 * from a command-line sign-in, they end with the sign-in instead. If callers create the link for themselves, the
 * session has at most the roles of their credential.
 * @param origin the origin of the console
 * @throws Refusal
 */
export function createLink(
  context: Context,
  author: Author,
  caller: Caller,
  { administrator: wanted, origin }: { readonly administrator: string | undefined; readonly origin: string },
): Promise<ConsoleLink> {
  return issueLink(context, author, caller, {
    ...{ origin, lifetime: linkMilliseconds, endsWithSignIn: true },
    idIn: async (transaction) => {
      const id = await (wanted === undefined ? defaultOwner(transaction, caller) : idOf(transaction, wanted));
      const notFound = Refusal.notFound('Administrator');
      if (id === undefined || id !== caller.administratorId)
        requireRightOverOthers(context, caller, () => author, notFound);
      if (id === undefined) throw notFound;
      return id;
    },
  });
}

/**
 * Creates a link that signs a member of a merchant in once. Before the call, the route must check that the caller is
 * allowed to change this merchant's members. The link outlives the caller's command-line sign-in, because members often
 * open it after the caller has signed out.
 * @param id the id of the member
 * @throws Refusal
 */
export function createMemberLink(
  context: Context,
  author: Author,
  caller: Caller,
  { id, origin }: { readonly id: string; readonly origin: string },
): Promise<ConsoleLink> {
  const idIn = (): Promise<string> => Promise.resolve(id);
  const lifetime = memberLinkMilliseconds;
  return issueLink(context, author, caller, { origin, lifetime, endsWithSignIn: false, idIn });
}

function issueLink(
  context: Context,
  author: Author,
  caller: Caller,
  {
    origin,
    lifetime,
    endsWithSignIn,
    idIn,
  }: {
    readonly origin: string;
    readonly lifetime: number;
    /** Whether the link and its session end with the command-line sign-in of the caller. */
    readonly endsWithSignIn: boolean;
    /** Returns the id of the administrator whom the link signs in. */
    readonly idIn: (transaction: RegistryDatabase) => Promise<string>;
  },
): Promise<ConsoleLink> {
  return makeUnpublishedChange(context, author, async ({ transaction, now }) => {
    const { id: administratorId, name, merchantId } = await ownerOf(transaction, caller, await idIn(transaction));
    await transaction
      .deleteFrom('console_links')
      .where('expires_at', '<', now - keptMilliseconds)
      .execute();
    await requireRoom(transaction, administratorId, now);
    const isOwn = administratorId === caller.administratorId;
    const secret = newSecret(context.random);
    const id = newId('lnk', now, context.random);
    // Does not store the token of a command-line sign-in: that token is replaced every few minutes, and the link and
    // its session would end with it.
    const tokenId = caller.proof.startsWith('token:') ? caller.tokenId : (caller.session?.tokenId ?? null);
    const tokens = transaction.selectFrom('administrator_tokens').select('expires_at');
    const issuer = await tokens.where('id', '=', tokenId ?? '').executeTakeFirst();
    const signIn = endsWithSignIn ? await signInOf(transaction, caller) : null;
    const expiresAt = Math.min(now + lifetime, issuer?.expires_at ?? Infinity, signIn?.expires_at ?? Infinity);
    await transaction
      .insertInto('console_links')
      .values({
        ...{ id, digest: digestOf(secret), administrator_id: administratorId },
        ...{ roles: isOwn ? textOf(caller.tokenRoles) : null, sources: textOf(caller.sources) },
        ...issuerColumns(caller, administratorId),
        ...{ token_id: tokenId, sign_in_id: signIn?.id ?? null },
        ...{ created_at: now, expires_at: expiresAt, used_at: null },
      })
      .execute();
    const shown = { administratorId, name, expiresAt: new Date(expiresAt).toISOString() };
    const event = { action: 'console-link.created', merchantId: merchantId ?? '', keyId: null, before: null } as const;
    return {
      result: { url: `${origin}/console/enter#${secret}`, ...shown },
      events: [{ ...event, after: { id, ...shown } }],
    };
  });
}

/**
 * Returns the administrator whom a link would sign in.
 * @throws Refusal if the administrator is disabled or a machine, or if a session of the console wants a link for its
 * own administrator
 */
async function ownerOf(transaction: RegistryDatabase, caller: Caller, id: string): Promise<Administrator> {
  // A link counts as a recent proof of identity. If a session could create a link for itself, anybody at an open
  // browser could renew that proof forever.
  if (id === caller.administratorId && caller.session !== null) {
    throw new Refusal(
      409,
      'A console session cannot create a link for its own administrator. To prove your identity, sign in again',
      [],
      'signed_in_already',
    );
  }
  const owner = await findAdministrator(transaction, id);
  if (owner.status !== 'ACTIVE') throw new Refusal(409, 'The administrator is disabled');
  if (owner.kind === 'machine')
    throw new Refusal(409, 'The administrator is a program, which signs in with a token, not with a link');
  return owner;
}

/** Returns the id of the administrator with this name or id; undefined if there is none. */
async function idOf(transaction: RegistryDatabase, wanted: string): Promise<string | undefined> {
  const found = await transaction
    .selectFrom('administrators')
    .select('id')
    .where((it) => it.or([it('name', '=', wanted), it('id', '=', wanted)]))
    .executeTakeFirst();
  return found?.id;
}

/**
 * Returns the id of the caller. For the shared token, which belongs to no administrator, returns the id of the only
 * active owner. @throws Refusal if there is no active owner, or more than one
 */
async function defaultOwner(transaction: RegistryDatabase, { administratorId }: Caller): Promise<string> {
  if (administratorId !== null) return administratorId;
  const [first, ...others] = await activeOwners(transaction);
  if (first === undefined) {
    const create = 'merchant-gateway administrators create NAME --role owner';
    throw new Refusal(409, `No active owner exists: create one with "${create}"`, [], 'no_owner');
  }
  if (others.length === 0) return first;
  const message = 'administrator is required with the shared token, because there are several owners';
  throw Refusal.invalid([{ path: 'administrator', message }]);
}

async function requireRoom(transaction: RegistryDatabase, owner: string, now: number): Promise<void> {
  const { total } = await transaction
    .selectFrom('console_links')
    .select((it) => it.fn.countAll<number>().as('total'))
    .where('administrator_id', '=', owner)
    .where('expires_at', '>', now)
    .executeTakeFirstOrThrow();
  if (total >= mostLinks)
    throw new Refusal(
      409,
      `The administrator has ${mostLinks} links that have not expired, including used ones: use an unused link, or wait until a link expires`,
    );
}

/** Returns the error for requests to a registry without a console. */
export function consoleOff(): Refusal {
  return new Refusal(404, 'This registry has no console: set registry.console', [], 'console_off');
}

function textOf(list: readonly string[] | null): string | null {
  return list === null ? null : JSON.stringify(list);
}

/** The secret of the session that a link opened, or the reason why it opened no session. */
export type Entered =
  | { readonly secret: string; readonly name: string }
  | { readonly cause: 'unknown-link' | 'used-link' | 'expired-link' | 'disabled' };

/** Exchanges the token of a link for a session. A link opens only one session, even if two requests use it at once. */
export async function redeemLink(context: Context, author: Author, token: string, from: Opening): Promise<Entered> {
  const linkIn = (database: RegistryDatabase) =>
    database.selectFrom('console_links').selectAll().where('digest', '=', digestOf(token)).executeTakeFirst();
  // Anybody can send unknown tokens. Rejects them before the transaction below, which would delay all other changes.
  if ((await linkIn(context.database)) === undefined) return { cause: 'unknown-link' };
  return makeUnpublishedChange<Entered>(context, author, async ({ transaction, now }) => {
    const link = await linkIn(transaction);
    const refused = (cause: Extract<Entered, { cause: unknown }>['cause']) => ({ result: { cause }, events: [] });
    if (link === undefined) return refused('unknown-link');
    if (link.used_at !== null) return refused('used-link');
    if (link.expires_at <= now) return refused('expired-link');
    const owner = await findAdministrator(transaction, link.administrator_id);
    const tokens = transaction.selectFrom('administrator_tokens').select(['revoked_at', 'expires_at']);
    const issuer = await tokens.where('id', '=', link.token_id ?? '').executeTakeFirst();
    const signIns = transaction.selectFrom('sign_ins').select(['status', 'expires_at']);
    const signIn = await signIns.where('id', '=', link.sign_in_id ?? '').executeTakeFirst();
    // Checks the issuers too. Otherwise a disabled administrator could use the links that they had created for others.
    const involved = transaction.selectFrom('administrators').select('id');
    const disabled = involved.where('id', 'in', [owner.id, ...issuersIn(link)]).where('status', '!=', 'ACTIVE');
    const isDisabled = (await disabled.executeTakeFirst()) !== undefined;
    const isRevoked = (issuer?.revoked_at ?? null) !== null || signIn?.status === 'ENDED';
    if (isDisabled || isRevoked) return refused('disabled');
    const endsAt = issuer?.expires_at ?? signIn?.expires_at ?? null;
    // Without this check, the person would be signed in to a session that has already ended.
    if (endsAt !== null && endsAt <= now) return refused('expired-link');
    await transaction.updateTable('console_links').set({ used_at: now }).where('id', '=', link.id).execute();
    const { administrator_id, roles, sources, issued_by, issuers, token_id, sign_in_id } = link;
    const given: NewSession = {
      ...{ administrator_id, roles, sources, issued_by, issuers, token_id, sign_in_id },
      ...{ proven_at: now, proven_by: 'link', endsAt },
    };
    const opened = await openSession(transaction, context.random, given, { ...from, now });
    const { name, merchantId, id: administratorId } = owner;
    const after = { sessionId: opened.id, administratorId, name, roles: owner.roles, linkId: link.id };
    const event = { action: 'sign-in.succeeded', merchantId: merchantId ?? '', keyId: null, before: null } as const;
    const provenAuthor = { ...author, actor: name, administratorId, proof: `session:${opened.id}` };
    return { result: { secret: opened.secret, name }, events: [{ ...event, after }], provenAuthor };
  });
}
