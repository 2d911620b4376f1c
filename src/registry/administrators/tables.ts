/** A person or machine that may use the admin API. */
interface AdministratorRow {
  id: string;
  name: string;
  kind: 'person' | 'machine';
  status: 'ACTIVE' | 'DISABLED';
  /** The names of the roles, as a JSON list. */
  roles: string;
  /** The only merchant that a member may see; null for administrators of the platform. */
  merchant_id: string | null;
  /** Issuer and subject of the identity at an OpenID provider; null without one. */
  issuer: string | null;
  subject: string | null;
  created_at: number;
  updated_at: number;
  /** Number of changes, from 1. A change names the version that it is based on. */
  version: number;
}

/** A bearer token of an administrator. */
interface TokenRow {
  id: string;
  administrator_id: string;
  /**
   * The id of another administrator who issued the token and so may know it; null if nobody else did. A token that is
   * created with this token gets the same value.
   */
  issued_by: string | null;
  /** `session`: a short-lived token, which a sign-in issues. `token`: any other. */
  kind: 'token' | 'session';
  name: string;
  /** SHA-256 of the token, in hex. The database does not store the token itself. */
  digest: string;
  /** The roles of the administrator that the token has, as a JSON list; null: all that the administrator has. */
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
