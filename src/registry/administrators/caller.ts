import { timingSafeEqual } from 'node:crypto';
import type { Selectable } from '../../database/kysely.js';
import { isFrom } from '../../rest/bearer-token.js';
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
   * If another administrator issued the token, the id of that administrator, who could know the token. Otherwise null.
   */
  readonly issuedBy: string | null;
  /**
   * If the caller is a member (an administrator of one merchant): the id of this merchant, the only one that the member
   * sees. Null for administrators of the platform, who see all merchants.
   */
  readonly merchantId: string | null;
  /** The addresses and CIDRs from which the credential is valid; null for all. */
  readonly sources: readonly string[] | null;
  /** When the token or session expires, in milliseconds since 1970; null for the shared token. */
  readonly expiresAt: number | null;
  /** The caller's session of the console; null for a bearer token. */
  readonly session: CallerSession | null;
}

/** The session of the console that makes a request. Times are in milliseconds since 1970. */
export interface CallerSession {
  readonly id: string;
  readonly createdAt: number;
  /** When the person last signed in at the provider or with a link; null if the provider did not send the time. */
  readonly provenAt: number | null;
  /**
   * Until when the sign-in at `provenAt` is recent enough to create keys and to fund wallets; null if `provenAt` is
   * null.
   */
  readonly provenUntil: number | null;
  /** When the session ends if no further request uses it. */
  readonly idleEndsAt: number;
}

/** Name of the caller that uses the shared token of `registry.tokenFile`. This caller has the role `owner`. */
export const bootstrapName = 'bootstrap';

/** Why a credential was not accepted. Events and logs contain this, but responses do not. */
type Rejection =
  | ('absent' | 'misplaced' | 'malformed' | 'unknown' | 'revoked' | 'expired' | 'disabled' | 'source')
  | ('bootstrap-off' | 'ended' | 'idle');

/**
 * The result of a credential check: the caller, or the reason for the rejection of the credential. After a rejection,
 * `credential` has the id of the rejected token or session; null if unknown.
 */
export type Identified =
  | { readonly caller: Caller }
  | {
      readonly rejection: Rejection;
      readonly credential: { readonly tokenId: string | null } | { readonly sessionId: string | null };
    };

/** Dependencies of the check of a credential. */
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
  readonly #bootstrapDigest: Buffer | null;

  constructor({ database, bootstrapToken }: IdentityOptions) {
    this.#database = database;
    this.#bootstrapDigest = bootstrapToken === null ? null : Buffer.from(digestOf(bootstrapToken));
  }

  /**
   * Checks a bearer token, and stores the use of a valid one.
   * @param source the client's IP address
   * @throws DatabaseError
   */
  async identify(token: string, source: string, now: number): Promise<Identified> {
    const digest = digestOf(token);
    // Digests have equal lengths, so the time of the comparison reveals neither the content nor the length of a token.
    if (this.#bootstrapDigest !== null && timingSafeEqual(Buffer.from(digest), this.#bootstrapDigest)) {
      return { caller: bootstrapCaller };
    }
    if (!isTokenText(token)) return { rejection: 'malformed', credential: { tokenId: null } };
    const row = await this.#database
      .selectFrom('administrator_tokens as token')
      .innerJoin('administrators as owner', 'owner.id', 'token.administrator_id')
      .selectAll('token')
      .select(['owner.name as owner_name', 'owner.status', 'owner.roles as owner_roles', 'owner.merchant_id'])
      .where('token.digest', '=', digest)
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
      ...{ issuedBy: row.issued_by, merchantId: row.merchant_id, expiresAt: row.expires_at },
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
  ...{ tokenRoles: null, issuedBy: null, merchantId: null, expiresAt: null, sources: null },
  session: null,
};

/** Parses a list that is stored as JSON. Returns null for null, which means no limit. */
export function listIn(text: string | null): string[] | null {
  return text === null ? null : (JSON.parse(text) as string[]);
}

function rejectionOf(row: StoredToken & { readonly status: string }, source: string, now: number): Rejection | null {
  if (row.revoked_at !== null) return 'revoked';
  if (row.expires_at <= now) return 'expired';
  if (row.status !== 'ACTIVE') return 'disabled';
  return isFrom(listIn(row.sources), source) ? null : 'source';
}
