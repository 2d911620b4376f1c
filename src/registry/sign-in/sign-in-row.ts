/** A sign-in with an OpenID provider, from the request for a device code to its end. */
export interface SignInRow {
  id: string;
  /** `PENDING` until the person has approved the sign-in at the provider. */
  status: 'PENDING' | 'ACTIVE' | 'ENDED';
  /**
   * SHA-256, in hex, of the handle (secret) that the client must send next. Each successful use replaces the handle.
   */
  digest: string;
  /** SHA-256, in hex, of the previous handle (the client's secret); null before the first replacement. */
  former_digest: string | null;
  /**
   * The encrypted secret of the provider: the device code until the person approves, then the refresh token. Null if
   * the provider issued no refresh token, or if the sign-in has ended.
   */
  sealed: string | null;
  administrator_id: string | null;
  /** 1 if claims gave the roles; null before the person has approved, and in a row of the previous release. */
  has_claimed_roles: number | null;
  /** The id of the session token that was issued last; null until the person has approved. */
  token_id: string | null;
  /**
   * The client's source (`countedSource`). A row of the previous release has the whole address. With an IPv6 address,
   * such a row does not count for its /64, only in the total of all sources.
   */
  source: string;
  /** How long the client must wait between two requests. */
  interval_seconds: number;
  /**
   * When a request last called the provider for this sign-in, in milliseconds since 1970. 0: the next request is
   * allowed to call the provider at once.
   */
  polled_at: number;
  created_at: number;
  expires_at: number;
}
