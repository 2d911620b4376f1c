import type { IpAddress } from './ip-address.js';
import type { IpRanges } from './ip-ranges.js';
import type { Environment, KeyFormat } from './key-format.js';
import type { OriginClaim, OriginPatterns } from './origins.js';
import type { Access, Permissions } from './permissions.js';

/** Everything about a request that the decision depends on. Holds no secret, so it may be logged and explained. */
export interface RequestFacts {
  /** The environment that this gateway serves. */
  readonly environment: Environment;
  /** Whether the caller's own hop was TLS, as far as it can be trusted. */
  readonly secure: boolean;
  /** The address that the request comes from, behind trusted proxies. */
  readonly clientAddress: IpAddress;
  /** Whether that address is a Tor exit; null where that cannot be told. */
  readonly torExit: boolean | null;
  /** Whether Host, Origin or Referer names an onion service. */
  readonly onionService: boolean;
  readonly keyFormat: KeyFormat;
  /** The first present of Origin, Referer and Host; null where there is none. */
  readonly origin: OriginClaim | null;
  /** The resource of the route; null where the path has no route, so that there is nothing to permit. */
  readonly resource: string | null;
  readonly access: Access;
  /** The moment of the request, in milliseconds since 1970. */
  readonly now: number;
}

/** A key and its merchant as the key store knows them, with the lists compiled. */
export interface Credential {
  readonly keyId: string;
  readonly merchantId: string;
  readonly environment: Environment;
  /** `ACTIVE`, or anything else for a key that no longer opens. */
  readonly keyStatus: string;
  /** The moment from which the key no longer opens, in milliseconds since 1970; null: never. */
  readonly expiresAt: number | null;
  readonly permissions: Permissions;
  /** `ACTIVE`, or anything else for a merchant that may not call. */
  readonly merchantStatus: string;
  readonly goLive: boolean;
  /** null: not configured, every address may call. */
  readonly ipAllowlist: IpRanges | null;
  /** null: not configured, every origin may call. */
  readonly originAllowlist: OriginPatterns | null;
  /** The numbers of the changes that the two records are of. */
  readonly keyRevision: number;
  readonly merchantRevision: number;
}
