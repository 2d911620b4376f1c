/** What a session and a one-time link have in common: for whom they are, and how far they reach. */
interface Grant {
  id: string;
  /** SHA-256 of the secret, in hex. The database does not store the secret itself. */
  digest: string;
  administrator_id: string;
  /** The roles to which it is limited, as a JSON list; null: all that the administrator has. */
  roles: string | null;
  /** The addresses and CIDRs from which it is valid, as a JSON list; null for all. */
  sources: string | null;
  /** The other administrator who created the link, and so may know it; null if nobody else did. */
  issued_by: string | null;
  /** The token with which the link was created: the session ends with it. Null without one. */
  token_id: string | null;
  created_at: number;
  expires_at: number;
}

/** A session of a browser. */
export interface ConsoleSessionRow extends Grant {
  last_seen_at: number;
  /** When the person last proved their identity; null if the provider did not say. */
  proven_at: number | null;
  proven_by: 'link' | 'oidc';
  /** IP address from which the person signed in. */
  source: string;
  /** The browser's User-Agent. */
  browser: string;
  ended_at: number | null;
}

/** A link that signs its reader in once. */
interface ConsoleLinkRow extends Grant {
  used_at: number | null;
}

/** A sign-in that waits for the OpenID provider. */
interface ConsoleSignInRow {
  id: string;
  /** SHA-256 of the cookie, in hex. */
  digest: string;
  /** The state, the nonce, the code verifier and the page to return to, encrypted. */
  sealed: string;
  /** The session whose identity is proven again; null for a new session. */
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
