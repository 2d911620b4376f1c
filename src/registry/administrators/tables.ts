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
  /** Issuer and subject of the identity at an OpenID provider; null if the administrator has no such identity. */
  issuer: string | null;
  subject: string | null;
  created_at: number;
  updated_at: number;
  /**
   * Number of changes, from 1. A request to change the administrator names the version that it is based on, and is
   * rejected if this version has changed.
   */
  version: number;
}

/** A bearer token of an administrator. */
interface TokenRow {
  id: string;
  administrator_id: string;
  /**
   * The id of the other administrator who issued the token and so may know it; null if no other administrator did. A
   * token that is created with this token gets the same value.
   */
  issued_by: string | null;
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
