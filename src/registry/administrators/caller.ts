import type { Selectable } from '../../database/kysely.js';
import { isFrom, tokenCheck } from '../../rest/bearer-token.js';
import { listIn } from '../fields.js';
import type { RegistryDatabase } from '../registry-database.js';
import type { RegistryTables } from '../tables.js';
import { digestOf, isTokenText } from './token-text.js';

/** The administrator that makes a request. */
export interface Caller {
  readonly name: string;
  /** The id of the administrator; null for the shared token of `registry.tokenFile`. */
  readonly administratorId: string | null;
  readonly tokenId: string | null;
  /** The credential that proved the identity: `bootstrap` (the shared token), `token:ID` or `session:ID`. */
  readonly proof: string;
  /** The caller's roles now: the administrator's roles, without those that the token or session does not permit. */
  readonly roles: readonly string[];
  /** The roles to which the token or session is limited; null: all roles of the administrator. */
  readonly tokenRoles: readonly string[] | null;
  /**
   * The ids of the other administrators who could know the credential: the issuer of the token (or of the link that
   * opened the session), and the issuers of the credential that this issuer used.
   */
  readonly issuers: readonly string[];
  /**
   * The id of the only merchant that the caller sees, if the caller is a member (an administrator of one merchant).
   * Null for administrators of the platform, who see all merchants.
   */
  readonly merchantId: string | null;
  /** The addresses and CIDRs from which the credential is valid; null for all. */
  readonly sources: readonly string[] | null;
  /** When the token or session expires, in milliseconds since 1970; null for the shared token. */
  readonly expiresAt: number | null;
  /** The caller's session of the console; null for a bearer token. */
  readonly session: CallerSession | null;
}

/** The console session with which a request is made. Times are in milliseconds since 1970. */
export interface CallerSession {
  readonly id: string;
  /** The token with which the session's link was created; null if the session does not depend on a token. */
  readonly tokenId: string | null;
  /** The command-line sign-in that created the session's link; null if the session does not depend on one. */
  readonly signInId: string | null;
  readonly createdAt: number;
  /** When the person last signed in at the provider or with a link; null if the provider did not send the time. */
  readonly provenAt: number | null;
  /**
   * Until when the sign-in at `provenAt` is recent enough for routes with `isProven`, for example to create keys; null
   * if `provenAt` is null.
   */
  readonly provenUntil: number | null;
  /** When the session ends if no further request uses it. */
  readonly idleEndsAt: number;
}

/** Name of the caller that uses the shared token of `registry.tokenFile`. This caller has the role `owner`. */
export const bootstrapName = 'bootstrap';

/**
 * Why a credential was rejected. Events contain the reason. Responses reveal only `absent` and `misplaced`, which say
 * nothing about existing credentials.
 */
type Rejection =
  | ('absent' | 'misplaced' | 'malformed' | 'unknown' | 'revoked' | 'expired' | 'disabled' | 'source')
  | ('bootstrap-off' | 'ended' | 'idle');

/**
 * The reason why a credential was rejected. `credential` contains the id of the rejected token or session. This id is
 * null if unknown.
 */
export interface Rejected {
  readonly rejection: Rejection;
  readonly credential: { readonly tokenId: string | null } | { readonly sessionId: string | null };
  /** Whether a new sign-in replaced the session a moment ago. The browser may have the newer session already. */
  readonly wasReplaced?: boolean;
}

/** The result of a credential check: the caller, or the reason why the credential was rejected. */
export type Identified = { readonly caller: Caller } | Rejected;

/** Dependencies of Identities. */
export interface IdentityOptions {
  readonly database: RegistryDatabase;
  /** The shared token of `registry.tokenFile`; null if `registry.bootstrap` is `off` or no file is configured. */
  readonly bootstrapToken: string | null;
}

type StoredToken = Selectable<RegistryTables['administrator_tokens']>;

const betweenNotesMilliseconds = 60_000;

/**
 * Finds the administrator to whom a request's bearer token belongs. Reads the database each time, so that a revocation
 * takes effect at once.
 */
export class Identities {
  readonly #database: RegistryDatabase;
  readonly #isBootstrapToken: (token: string) => boolean;

  constructor({ database, bootstrapToken }: IdentityOptions) {
    this.#database = database;
    this.#isBootstrapToken = bootstrapToken === null ? () => false : tokenCheck(bootstrapToken);
  }

  /**
   * Returns the caller to whom a bearer token belongs, or why the token was rejected. Stores the use of a valid token.
   * @param source the client's IP address
   * @throws DatabaseError
   */
  async identify(token: string, source: string, now: number): Promise<Identified> {
    if (this.#isBootstrapToken(token)) return { caller: bootstrapCaller };
    if (!isTokenText(token)) return { rejection: 'malformed', credential: { tokenId: null } };
    const row = await this.#database
      .selectFrom('administrator_tokens as token')
      .innerJoin('administrators as owner', 'owner.id', 'token.administrator_id')
      .selectAll('token')
      .select(['owner.name as owner_name', 'owner.status', 'owner.roles as owner_roles', 'owner.merchant_id'])
      .where('token.digest', '=', digestOf(token))
      .executeTakeFirst();
    if (row === undefined) return { rejection: 'unknown', credential: { tokenId: null } };
    const rejection = rejectionOf(row, source, now);
    if (rejection !== null) return { rejection, credential: { tokenId: row.id } };
    await this.#noteUse(row, source, now);
    const ownerRoles = JSON.parse(row.owner_roles) as string[];
    const tokenRoles = listIn(row.roles);
    const caller: Caller = {
      ...{ name: row.owner_name, administratorId: row.administrator_id, tokenId: row.id },
      ...{ proof: `${row.kind}:${row.id}`, tokenRoles },
      roles: ownerRoles.filter((role) => tokenRoles?.includes(role) !== false),
      ...{ issuers: issuersIn(row), merchantId: row.merchant_id, expiresAt: row.expires_at },
      ...{ sources: listIn(row.sources), session: null },
    };
    return { caller };
  }

  /**
   * Stores the last use of a token, at most once a minute. A failed write does not reject the request, because the
   * database can be read-only during a failover.
   */
  async #noteUse({ id, last_used_at }: StoredToken, source: string, now: number): Promise<void> {
    if (now - (last_used_at ?? -Infinity) < betweenNotesMilliseconds) return;
    const used = { last_used_at: now, last_source: source };
    try {
      await this.#database.updateTable('administrator_tokens').set(used).where('id', '=', id).execute();
    } catch {
      // The next request with the token tries to store its use again.
    }
  }
}

const bootstrapCaller: Caller = {
  ...{ name: bootstrapName, administratorId: null, tokenId: null, proof: 'bootstrap', roles: ['owner'] },
  ...{ tokenRoles: null, issuers: [], merchantId: null, expiresAt: null, sources: null },
  session: null,
};

/** The columns with the issuers of a token, a link or a session. */
type IssuerColumns = Pick<StoredToken, 'issued_by' | 'issuers'>;

/** Returns the issuers in a row. A row of the previous release contains only the first issuer. */
export function issuersIn({ issued_by, issuers }: IssuerColumns): string[] {
  return listIn(issuers) ?? (issued_by === null ? [] : [issued_by]);
}

/**
 * Returns the columns for the issuers of a new token or link: the issuers of the caller's credential, and the caller.
 * @param owner the id of the administrator whom the token or link identifies; never one of the issuers
 */
export function issuerColumns({ issuers, administratorId }: Caller, owner: string): IssuerColumns {
  const others = [...new Set([...issuers, administratorId])].filter((id) => id !== null && id !== owner);
  return { issued_by: others[0] ?? null, issuers: others.length === 0 ? null : JSON.stringify(others) };
}

function rejectionOf(row: StoredToken & { readonly status: string }, source: string, now: number): Rejection | null {
  if (row.revoked_at !== null) return 'revoked';
  if (row.expires_at <= now) return 'expired';
  if (row.status !== 'ACTIVE') return 'disabled';
  return isFrom(listIn(row.sources), source) ? null : 'source';
}
