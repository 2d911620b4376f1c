import type { IpAddress } from './ip-address.js';
import type { IpRanges } from './ip-ranges.js';
import type { Environment, KeyFormat } from './key-format.js';
import type { OriginClaim, OriginPatterns } from './origins.js';
import type { Access, Permissions } from './permissions.js';

/** All facts about a request on which the decision depends. They contain no secret, so they can be logged. */
export interface RequestFacts {
  /** The environment that this gateway serves. */
  readonly environment: Environment;
  /** Whether the client's connection used TLS, according to the socket or to a trusted proxy. */
  readonly secure: boolean;
  /** The client's IP address. Behind trusted proxies, it is the address that they forwarded. */
  readonly clientAddress: IpAddress;
  /** Whether the client address is a Tor exit; null if unknown. */
  readonly torExit: boolean | null;
  /** Whether Host, Origin or Referer names a Tor onion service. */
  readonly onionService: boolean;
  readonly keyFormat: KeyFormat;
  /** The first of Origin, Referer and Host that is present; null if all are missing. */
  readonly origin: OriginClaim | null;
  /**
   * The API resource of the route, such as `payouts`. Null if no permission is needed, because no route matches the
   * path or the gateway itself responds.
   */
  readonly resource: string | null;
  readonly access: Access;
  /** Time of the decision in milliseconds since 1970. */
  readonly now: number;
}

/** A key and its merchant from the key store. The allowlists and permissions are compiled for fast checks. */
export interface Credential {
  readonly keyId: string;
  /** The merchant's own name for the key; null if the key has no label, or its record is from an earlier release. */
  readonly keyLabel: string | null;
  readonly merchantId: string;
  readonly merchantName: string;
  readonly environment: Environment;
  /** `ACTIVE`, or a status in which the key is not accepted. */
  readonly keyStatus: string;
  /** When the key status last changed, in milliseconds since 1970; null if unknown, as for active keys. */
  readonly keyStatusChangedAt: number | null;
  /** When the key expires, in milliseconds since 1970: it is rejected from this time on. Null if it never expires. */
  readonly expiresAt: number | null;
  /**
   * When the grace period of this key ends, in milliseconds since 1970. A reset replaces this key with a new one, but
   * the gateway accepts this key until the grace period ends. Then this key expires, so `expiresAt` is never later.
   * Null if this key was not reset, or if that is unknown.
   */
  readonly graceEndsAt: number | null;
  readonly permissions: Permissions;
  /** `ACTIVE`, or a status in which the merchant is not allowed to call the API. */
  readonly merchantStatus: string;
  /** When the merchant status last changed, in milliseconds since 1970; null if unknown, as for active merchants. */
  readonly merchantStatusChangedAt: number | null;
  readonly goLive: boolean;
  /** The addresses from which the merchant can call. Null if there is no allowlist: all addresses are allowed. */
  readonly ipAllowlist: IpRanges | null;
  /** The origins from which the merchant can call. Null if there is no allowlist: all origins are allowed. */
  readonly originAllowlist: OriginPatterns | null;
  /** Revision (number) of the database change that last wrote the key's record. */
  readonly keyRevision: number;
  /** Revision (number) of the database change that last wrote the merchant's record. */
  readonly merchantRevision: number;
}
