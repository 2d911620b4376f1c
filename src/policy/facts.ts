import type { IpAddress } from './ip-address.js';
import type { IpRanges } from './ip-ranges.js';
import type { Environment, KeyFormat } from './key-format.js';
import type { OriginClaim, OriginPatterns } from './origins.js';
import type { Access, Permissions } from './permissions.js';

/** All facts of a request that the decision depends on. Contains no secret, so it may be logged and explained. */
export interface RequestFacts {
  /** Environment that this gateway serves. */
  readonly environment: Environment;
  /** Whether the client's own hop used TLS, from the socket or a trusted proxy. */
  readonly secure: boolean;
  /** Client address, resolved through trusted proxies. */
  readonly clientAddress: IpAddress;
  /** Whether the client address is a Tor exit; null if unknown. */
  readonly torExit: boolean | null;
  /** Whether Host, Origin or Referer names an onion service. */
  readonly onionService: boolean;
  readonly keyFormat: KeyFormat;
  /** The first of Origin, Referer and Host that is present; null if all are missing. */
  readonly origin: OriginClaim | null;
  /** Resource of the route; null if no route matches the path, so no permission is needed. */
  readonly resource: string | null;
  readonly access: Access;
  /** Time of the request in milliseconds since 1970. */
  readonly now: number;
}

/** A key and its merchant from the key store, with compiled lists. */
export interface Credential {
  readonly keyId: string;
  readonly merchantId: string;
  readonly environment: Environment;
  /** `ACTIVE`; any other value means that the key is not accepted. */
  readonly keyStatus: string;
  /** Time of the last status change in milliseconds since 1970; null if unknown, as for active keys. */
  readonly keyStatusChangedAt: number | null;
  /** Expiry time in milliseconds since 1970; the key is not accepted from then on. Null: never expires. */
  readonly expiresAt: number | null;
  readonly permissions: Permissions;
  /** `ACTIVE`; any other value means that the merchant may not call. */
  readonly merchantStatus: string;
  /** Same meaning as `keyStatusChangedAt`. */
  readonly merchantStatusChangedAt: number | null;
  readonly goLive: boolean;
  /** Null: not configured, all addresses allowed. */
  readonly ipAllowlist: IpRanges | null;
  /** Null: not configured, all origins allowed. */
  readonly originAllowlist: OriginPatterns | null;
  /** Revisions of the key record and the merchant record. */
  readonly keyRevision: number;
  readonly merchantRevision: number;
}
