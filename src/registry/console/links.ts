import { Refusal } from '../../rest/refusal.js';
import type { Caller } from '../administrators/caller.js';
import { activeOwners, findAdministrator } from '../administrators/repository.js';
import { RefusedRight } from '../administrators/refused-right.js';
import { permits } from '../administrators/roles.js';
import type { Administrator } from '../administrators/schema.js';
import { digestOf } from '../administrators/token-text.js';
import { makeUnpublishedChange } from '../change.js';
import type { Author } from '../events/author.js';
import { newId, type RegistryContext } from '../registry-context.js';
import type { RegistryDatabase } from '../registry-database.js';
import type { ConsoleLink } from './schema.js';
import { type NewSession, newSecret, type Opening, openSession } from './sessions.js';

type Context = Pick<RegistryContext, 'database' | 'clock' | 'random'>;

const linkMilliseconds = 10 * 60_000;
/**
 * How long the link of a merchant's member is valid, in milliseconds. The time is long, because the member gets the
 * link by mail.
 */
const memberLinkMilliseconds = 24 * 60 * 60_000;
/**
 * Maximum number of unexpired links of one administrator. Used links count too, so the maximum also limits how fast an
 * administrator can open sessions with links.
 */
const mostLinks = 20;
const keptMilliseconds = 24 * 60 * 60_000;

/**
 * Creates a link that signs an administrator in once. The session is limited to the addresses of the caller's
 * credential. It ends when the caller's token expires or is revoked, unless the token is from a command-line sign-in.
 * If callers create the link for themselves, the session has at most the roles of their credential.
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
    ...{ origin, lifetime: linkMilliseconds },
    idIn: (transaction) =>
      wanted === undefined ? defaultOwner(transaction, caller) : idOf(transaction, caller, wanted),
  });
}

/**
 * Creates a link that signs a member of a merchant in once. Before the call, the route must check that the caller is
 * allowed to change this merchant's members.
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
  return issueLink(context, author, caller, { origin, lifetime: memberLinkMilliseconds, idIn });
}

function issueLink(
  context: Context,
  author: Author,
  caller: Caller,
  {
    origin,
    lifetime,
    idIn,
  }: {
    readonly origin: string;
    readonly lifetime: number;
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
    const expiresAt = now + lifetime;
    await transaction
      .insertInto('console_links')
      .values({
        ...{ id, digest: digestOf(secret), administrator_id: administratorId },
        ...{ roles: isOwn ? textOf(caller.tokenRoles) : null, sources: textOf(caller.sources) },
        issued_by: isOwn ? caller.issuedBy : (caller.issuedBy ?? caller.administratorId),
        // Does not store the token of a command-line sign-in: that token is replaced every few minutes, and the session
        // would end with it.
        token_id: caller.proof.startsWith('token:') ? caller.tokenId : null,
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
 * @throws Refusal if this administrator is disabled or a machine, or is the caller and has a session already
 */
async function ownerOf(transaction: RegistryDatabase, caller: Caller, id: string): Promise<Administrator> {
  // A link counts as a recent proof of identity. If a session could create a link for itself, anybody at an open
  // browser could renew that proof forever.
  if (id === caller.administratorId && caller.session !== null) {
    throw new Refusal(
      409,
      'You cannot create a link for yourself while you are signed in: sign in again to prove your identity',
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

/**
 * Returns the id of the administrator with this name or id. Finds an administrator other than the caller only if the
 * caller is allowed to change administrators.
 */
async function idOf(transaction: RegistryDatabase, caller: Caller, wanted: string): Promise<string> {
  const found = await transaction
    .selectFrom('administrators')
    .select('id')
    .where((it) => it.or([it('name', '=', wanted), it('id', '=', wanted)]))
    .executeTakeFirst();
  const isOwn = found?.id === caller.administratorId;
  if (!isOwn && !permits(caller.roles, 'administrators:write')) {
    throw new RefusedRight('administrators:write', Refusal.notFound('Administrator'));
  }
  if (found === undefined) throw Refusal.notFound('Administrator');
  return found.id;
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
    throw new Refusal(409, `No owner exists yet: create one first with "${create}"`, [], 'no_owner');
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
export function redeemLink(context: Context, author: Author, token: string, from: Opening): Promise<Entered> {
  return makeUnpublishedChange<Entered>(context, author, async ({ transaction, now }) => {
    const links = transaction.selectFrom('console_links').selectAll();
    const link = await links.where('digest', '=', digestOf(token)).executeTakeFirst();
    const refused = (cause: Extract<Entered, { cause: unknown }>['cause']) => ({ result: { cause }, events: [] });
    if (link === undefined) return refused('unknown-link');
    if (link.used_at !== null) return refused('used-link');
    if (link.expires_at <= now) return refused('expired-link');
    const owner = await findAdministrator(transaction, link.administrator_id);
    const tokens = transaction.selectFrom('administrator_tokens').select(['revoked_at', 'expires_at']);
    const issuer = await tokens.where('id', '=', link.token_id ?? '').executeTakeFirst();
    // Checks the creator too. Otherwise a disabled administrator could use the links that they had created for others.
    const creator = link.issued_by === null ? null : await findAdministrator(transaction, link.issued_by);
    const isDisabled = [owner, creator].some((one) => one !== null && one.status !== 'ACTIVE');
    if (isDisabled || (issuer?.revoked_at ?? null) !== null) return refused('disabled');
    await transaction.updateTable('console_links').set({ used_at: now }).where('id', '=', link.id).execute();
    const { administrator_id, roles, sources, issued_by, token_id } = link;
    const given: NewSession = {
      ...{ administrator_id, roles, sources, issued_by, token_id, proven_at: now, proven_by: 'link' },
      endsAt: issuer?.expires_at ?? null,
    };
    const opened = await openSession(transaction, context.random, given, { ...from, now });
    const { name, merchantId, id: administratorId } = owner;
    const after = { sessionId: opened.id, administratorId, name, roles: owner.roles, linkId: link.id };
    const event = { action: 'sign-in.succeeded', merchantId: merchantId ?? '', keyId: null, before: null } as const;
    const provenAuthor = { ...author, actor: name, administratorId, proof: `session:${opened.id}` };
    return { result: { secret: opened.secret, name }, events: [{ ...event, after }], provenAuthor };
  });
}
