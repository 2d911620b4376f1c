/** The columns that sessions and one-time links have in common: the administrator, and the limits of the session. */
interface Grant {
  id: string;
  /** SHA-256 of the secret, in hex. The database does not store the secret itself. */
  digest: string;
  administrator_id: string;
  /** The roles to which the session is limited, as a JSON list; null: all roles of the administrator. */
  roles: string | null;
  /** The addresses and CIDRs from which the session or link is valid, as a JSON list; null: all addresses. */
  sources: string | null;
  /** The first of the issuers (see `issuers`); null without issuers. The previous release knows only this column. */
  issued_by: string | null;
  /**
   * The ids of the administrators, besides `administrator_id`, who could know the link, as a JSON list: the creator of
   * the link, and the issuers of the creator's credential. Null without issuers, and in a row of the previous release.
   */
  issuers: string | null;
  /**
   * The token with which the link was created. The session ends when that token expires or is revoked. Null without a
   * token, and for the token of a command-line sign-in (see `sign_in_id`).
   */
  token_id: string | null;
  /**
   * The command-line sign-in with which the link was created. The session ends with that sign-in. Null without a
   * command-line sign-in, for an invitation of a member, and in a row of the previous release.
   */
  sign_in_id: string | null;
  created_at: number;
  expires_at: number;
}

/** A session of a browser. */
export interface ConsoleSessionRow extends Grant {
  last_seen_at: number;
  /** When the person last signed in at the provider or with a link; null if the provider did not state the time. */
  proven_at: number | null;
  proven_by: 'link' | 'oidc';
  /** IP address from which the person signed in. */
  source: string;
  /** The browser's User-Agent. */
  browser: string;
  ended_at: number | null;
}

/** A one-time link that signs its administrator in. */
interface ConsoleLinkRow extends Grant {
  used_at: number | null;
}

/** A sign-in of a person who was sent to the OpenID provider and has not returned. */
interface ConsoleSignInRow {
  id: string;
  /** SHA-256 of the cookie's secret, in hex. */
  digest: string;
  /** The OpenID state, nonce and code verifier, and the page to which the browser goes after the sign-in, encrypted. */
  sealed: string;
  /**
   * The id of the session that the browser had when the sign-in began. The new session will replace that session. Null
   * if the browser had no session.
   */
  session_id: string | null;
  /**
   * The client's IPv4 address or IPv6 /64 (`countedSource`), because each source has a limit of waiting sign-ins. In a
   * row of the previous release, this is the whole address. If that is an IPv6 address, the row counts only for the
   * limit of all sources together.
   */
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
