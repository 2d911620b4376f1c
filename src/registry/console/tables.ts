/** The columns that sessions and one-time links have in common: the administrator, and the limits of their rights. */
interface Grant {
  id: string;
  /** SHA-256 of the secret, in hex. The database does not store the secret itself. */
  digest: string;
  administrator_id: string;
  /** The roles to which the session is limited, as a JSON list; null: all roles of the administrator. */
  roles: string | null;
  /** The addresses and CIDRs from which the session or link is valid, as a JSON list; null for all. */
  sources: string | null;
  /** The other administrator who created the link, and so may know it; null if no other administrator did. */
  issued_by: string | null;
  /**
   * The token with which the link was created. The session ends when that token expires or is revoked. Null if the link
   * was created without such a token.
   */
  token_id: string | null;
  created_at: number;
  expires_at: number;
}

/** A session of a browser. */
export interface ConsoleSessionRow extends Grant {
  last_seen_at: number;
  /** When the person last signed in at the provider or with a link; null if the provider did not say. */
  proven_at: number | null;
  proven_by: 'link' | 'oidc';
  /** IP address from which the person signed in. */
  source: string;
  /** The browser's User-Agent. */
  browser: string;
  ended_at: number | null;
}

/** A link that signs its administrator in once. */
interface ConsoleLinkRow extends Grant {
  used_at: number | null;
}

/** A sign-in that waits for the OpenID provider. */
interface ConsoleSignInRow {
  id: string;
  /** SHA-256 of the cookie's secret, in hex. */
  digest: string;
  /** The state, the nonce, the code verifier and the page to return to, encrypted. */
  sealed: string;
  /** The session whose person has to sign in again; null if the sign-in opens a new session. */
  session_id: string | null;
  source: string;
  created_at: number;
  expires_at: number;
}

/** The tables of the console. */
export interface ConsoleTables {
  console_sessions: ConsoleSessionRow;
  console_links: ConsoleLinkRow;
  console_sign_ins: ConsoleSignInRow;
}
