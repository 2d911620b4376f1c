/** A person or machine with access to the admin API. */
interface AdministratorRow {
  id: string;
  name: string;
  kind: 'person' | 'machine';
  status: 'ACTIVE' | 'DISABLED';
  /** The names of the roles, as a JSON list. */
  roles: string;
  /** The id of the only merchant that a member (administrator of one merchant) sees; null for other administrators. */
  merchant_id: string | null;
  /** The issuer of the administrator's OpenID identity; null if the administrator has no such identity. */
  issuer: string | null;
  /** The provider's id (`sub`) of the person; null if the administrator has no OpenID identity. */
  subject: string | null;
  created_at: number;
  updated_at: number;
  /**
   * Starts at 1 and increases with each change. A request to change the administrator can name the version on which the
   * change is based. The registry rejects the request if the administrator has another version.
   */
  version: number;
}

/** A bearer token of an administrator. */
interface TokenRow {
  id: string;
  administrator_id: string;
  /** The first of the issuers (see `issuers`); null without issuers. The previous release knows only this column. */
  issued_by: string | null;
  /**
   * The ids of the other administrators who could know the token, as a JSON list: the administrator who issued it, and
   * the issuers of the credential with which it was issued. Null without issuers, and in a row of the previous release.
   */
  issuers: string | null;
  /** `session`: a short-lived token that a sign-in issues. `token`: any other token. */
  kind: 'token' | 'session';
  name: string;
  /** SHA-256 of the token, in hex. The database does not store the token itself. */
  digest: string;
  /** The roles to which the token is limited, as a JSON list; null: all roles of the administrator. */
  roles: string | null;
  /** The addresses and CIDRs from which the token is valid, as a JSON list; null for all. */
  sources: string | null;
  created_at: number;
  expires_at: number;
  revoked_at: number | null;
  last_used_at: number | null;
  last_source: string | null;
}

/** The tables of administrators. */
export interface AdministratorTables {
  administrators: AdministratorRow;
  administrator_tokens: TokenRow;
}
