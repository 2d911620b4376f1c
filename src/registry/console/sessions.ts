import { type Selectable, sql, type SqlBool } from '../../database/kysely.js';
import type { FastifyRequest } from 'fastify';
import { isFrom } from '../../rest/bearer-token.js';
import { Refusal } from '../../rest/refusal.js';
import { type Caller, type Identified, issuersIn, type Rejected } from '../administrators/caller.js';
import type { Credentials } from '../administrators/credentials.js';
import { digestOf } from '../administrators/token-text.js';
import { listIn } from '../fields.js';
import type { RegistryDatabase } from '../registry-database.js';
import { newId, type RegistryContext } from '../registry-context.js';
import type { RegistryTables } from '../tables.js';
import { clearSession, secretIn, sessionCookie } from './cookies.js';
import type { ConsoleSessionRow } from './tables.js';

type Row = Selectable<RegistryTables['console_sessions']>;

const minute = 60_000;
/** How long a session lasts without a request, in milliseconds. */
export const idleMilliseconds = 30 * minute;
/** How long a session lasts at most, in milliseconds. */
const longestMilliseconds = 8 * 60 * minute;
/**
 * How long a sign-in counts as a recent proof of identity, in milliseconds. The time is longer after a sign-in with a
 * one-time link, because people set the console up after such a sign-in.
 */
const proofMilliseconds = { oidc: 5 * minute, link: 10 * minute } as const;
const betweenNotesMilliseconds = minute;
/**
 * Grace period, in milliseconds, after a sign-in has replaced a session. During this period, late requests with the old
 * cookie do not delete the browser's new cookie.
 */
const lateMilliseconds = minute;
/**
 * How long an expired session stays stored. During this time, the registry can still identify the session of a rejected
 * cookie.
 */
const keptMilliseconds = 24 * 60 * minute;
const secretBytes = 32;
const longestBrowser = 200;

/**
 * The data that a new session gets from the one-time link or from the OpenID provider. `endsAt` is the expiry of the
 * token or the command-line sign-in with which the link was created, in milliseconds since 1970. It is null if the
 * session depends on neither.
 */
export type NewSession = Pick<
  ConsoleSessionRow,
  | ('administrator_id' | 'roles' | 'sources' | 'issued_by' | 'issuers')
  | ('token_id' | 'sign_in_id' | 'proven_at' | 'proven_by')
> & { readonly endsAt: number | null };

/** Creates a secret for a cookie or a link: 256 random bits. */
export function newSecret(random: RegistryContext['random']): string {
  return random(secretBytes).toString('base64url');
}

/**
 * The client that opens a session. `replaces` is the id of the browser's previous session; null if there is no previous
 * session. The previous session ends when the new session opens.
 */
export interface Opening {
  readonly source: string;
  readonly browser: string;
  readonly replaces: string | null;
}

/** Returns the id of the session to which a cookie belongs; null if no session has this cookie. */
export async function sessionIdOf(
  database: RegistryDatabase,
  found: ReturnType<typeof secretIn>,
): Promise<string | null> {
  if (found === null || found === 'malformed') return null;
  const rows = database.selectFrom('console_sessions').select('id').where('digest', '=', digestOf(found.secret));
  return (await rows.executeTakeFirst())?.id ?? null;
}

/**
 * Stores a new session. Call this in a transaction. Never reuses the browser's session: an attacker might have put that
 * session's cookie into the browser before the sign-in.
 * @returns the secret, which only the cookie contains, and the id
 */
export async function openSession(
  transaction: RegistryDatabase,
  random: RegistryContext['random'],
  { endsAt, ...given }: NewSession,
  { source, browser, now, replaces }: Opening & { readonly now: number },
): Promise<{ readonly secret: string; readonly id: string }> {
  await transaction
    .deleteFrom('console_sessions')
    .where('expires_at', '<', now - keptMilliseconds)
    .execute();
  if (replaces !== null) {
    const open = transaction.updateTable('console_sessions').set({ ended_at: now }).where('id', '=', replaces);
    await open.where('ended_at', 'is', null).execute();
  }
  const secret = newSecret(random);
  const id = newId('ses', now, random);
  await transaction
    .insertInto('console_sessions')
    .values({
      ...{ ...given, id, digest: digestOf(secret), source, browser },
      ...{ created_at: now, last_seen_at: now, ended_at: null },
      expires_at: Math.min(now + longestMilliseconds, endsAt ?? Infinity),
    })
    .execute();
  return { secret, id };
}

/** Returns the User-Agent of a request. Removes all characters except printable ASCII, and shortens a long text. */
export function browserOf({ headers }: FastifyRequest): string {
  return (headers['user-agent'] ?? '').replaceAll(/[^\x20-\x7e]/g, '').slice(0, longestBrowser);
}

/** Returns when a session ends if no further request uses it, in milliseconds since 1970. */
function idleEndOf({ last_seen_at, expires_at }: Pick<Row, 'last_seen_at' | 'expires_at'>): number {
  return Math.min(last_seen_at + idleMilliseconds, expires_at);
}

/**
 * Returns how callers of the console authenticate: with a session cookie. Rejects bearer tokens, so that pages of the
 * console have no reason to store a token.
 */
export function sessionCredentials(database: RegistryDatabase): Credentials {
  return {
    identify: async (request, source, now) => {
      if (request.headers.authorization !== undefined) return rejected('misplaced', null);
      const found = secretIn(request, sessionCookie);
      if (found === null) return rejected('absent', null);
      if (found === 'malformed') return rejected('malformed', null);
      return identify(database, found.secret, source, now);
    },
    noteUse: async ({ headers, routeOptions }, caller, now) => {
      // Requests that a page sends by itself have `x-unattended`. EventSource cannot send this header, so a stream
      // always counts as automatic.
      const isAutomatic = headers['x-unattended'] !== undefined || routeOptions.config.operation?.isStream === true;
      if (!isAutomatic) await noteSession(database, caller, now);
    },
    // Deletes the cookie. Otherwise the browser would send the secret of an ended session again and again. A late
    // request of a session that a new sign-in has just replaced must not delete the cookie of the new session.
    onRejected: (reply, { wasReplaced }) => {
      if (wasReplaced !== true) reply.header('set-cookie', clearSession);
    },
    refusalOf: (rejection) =>
      rejection === 'misplaced'
        ? new Refusal(401, 'The console accepts no bearer token: use the admin API')
        : new Refusal(401, 'You are not signed in', [], 'not_signed_in'),
  };
}

/**
 * The SQL condition that an issuer of a session (see `Caller.issuers`) is disabled. Such a session must end, because
 * the issuer could have opened it in place of its administrator.
 */
export const hasDisabledIssuer = sql<SqlBool>`(session.issued_by is not null and exists (
  select 1 from administrators as issuer where issuer.status <> 'ACTIVE'
    and (issuer.id = session.issued_by or session.issuers like ('%"' || issuer.id || '"%'))
))`;

/** A session, with columns of its administrator and of the token or sign-in with which its link was created. */
interface Stored extends Row {
  readonly owner_name: string;
  readonly status: string;
  readonly owner_roles: string;
  readonly merchant_id: string | null;
  readonly token_revoked_at: number | null;
  readonly sign_in_status: string | null;
  readonly has_disabled_issuer: SqlBool;
}

async function identify(database: RegistryDatabase, secret: string, source: string, now: number): Promise<Identified> {
  const row: Stored | undefined = await database
    .selectFrom('console_sessions as session')
    .innerJoin('administrators as owner', 'owner.id', 'session.administrator_id')
    .leftJoin('administrator_tokens as token', 'token.id', 'session.token_id')
    .leftJoin('sign_ins as sign_in', 'sign_in.id', 'session.sign_in_id')
    .selectAll('session')
    .select(['owner.name as owner_name', 'owner.status', 'owner.roles as owner_roles', 'owner.merchant_id'])
    .select(['token.revoked_at as token_revoked_at', 'sign_in.status as sign_in_status'])
    .select(hasDisabledIssuer.as('has_disabled_issuer'))
    .where('session.digest', '=', digestOf(secret))
    .executeTakeFirst();
  if (row === undefined) return rejected('unknown', null);
  const rejection = rejectionOf(row, source, now);
  if (rejection !== null) {
    const { ended_at: endedAt } = row;
    const isLate = endedAt !== null && now - endedAt < lateMilliseconds;
    return { ...rejected(rejection, row.id), wasReplaced: isLate && (await hasOpenedAt(database, endedAt)) };
  }
  return { caller: callerIn(row) };
}

/** Whether a session began at this time. If so, it replaced the session that ended at this time (`openSession`). */
async function hasOpenedAt(database: RegistryDatabase, at: number): Promise<boolean> {
  const opened = database.selectFrom('console_sessions').select('id').where('created_at', '=', at);
  return (await opened.executeTakeFirst()) !== undefined;
}

function callerIn(row: Stored): Caller {
  const ownerRoles = JSON.parse(row.owner_roles) as string[];
  const tokenRoles = listIn(row.roles);
  return {
    ...{ name: row.owner_name, administratorId: row.administrator_id, tokenId: null, proof: `session:${row.id}` },
    ...{ roles: ownerRoles.filter((role) => tokenRoles?.includes(role) !== false), tokenRoles },
    ...{ issuers: issuersIn(row), merchantId: row.merchant_id, sources: listIn(row.sources) },
    ...{ expiresAt: row.expires_at, session: sessionIn(row) },
  };
}

function sessionIn(row: Row): NonNullable<Caller['session']> {
  const { id, token_id: tokenId, sign_in_id: signInId, created_at: createdAt, proven_at: provenAt, proven_by } = row;
  const provenUntil = provenAt === null ? null : provenAt + proofMilliseconds[proven_by];
  return { id, tokenId, signInId, createdAt, provenAt, provenUntil, idleEndsAt: idleEndOf(row) };
}

function rejectionOf(row: Stored, source: string, now: number) {
  if (row.ended_at !== null) return 'ended';
  if (row.expires_at <= now) return 'expired';
  if (idleEndOf(row) <= now) return 'idle';
  if (row.status !== 'ACTIVE' || Boolean(row.has_disabled_issuer)) return 'disabled';
  if (row.token_revoked_at !== null || row.sign_in_status === 'ENDED') return 'revoked';
  return isFrom(listIn(row.sources), source) ? null : 'source';
}

function rejected(rejection: Rejected['rejection'], sessionId: string | null): Rejected {
  return { rejection, credential: { sessionId } };
}

/**
 * Stores when a person last used a session, at most once a minute. `noteUse` skips this for requests that a page sends
 * by itself, so that such requests do not keep the session alive. A failed write is ignored, because the database could
 * be read-only during a failover.
 */
async function noteSession(database: RegistryDatabase, { session }: Caller, now: number): Promise<void> {
  if (session === null || session.idleEndsAt - idleMilliseconds > now - betweenNotesMilliseconds) return;
  const used = database.updateTable('console_sessions').set({ last_seen_at: now }).where('id', '=', session.id);
  await used.execute().catch(() => undefined); // the next request tries again
}
