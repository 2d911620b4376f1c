import type { Clock, GeoIp, TorExits } from '../../gateway/ports.js';
import type { RequestFacts } from '../../policy/facts.js';
import type { IpAddress } from '../../policy/ip-address.js';
import type { IpRanges } from '../../policy/ip-ranges.js';
import { type Environment, keyFormatOf } from '../../policy/key-format.js';
import { namesOnionService, type OriginClaim } from '../../policy/origins.js';
import { accessOf } from '../../policy/permissions.js';
import { isSecure } from '../../policy/client-address.js';
import type { RequestData, DecisiveHeaders } from './request-data.js';
import type { RouteMatch } from './routes.js';

/** Dependencies of `factsOf`. */
export interface FactSources {
  readonly environment: Environment;
  readonly trustedProxies: IpRanges;
  readonly torExits: Pick<TorExits, 'has' | 'digest'>;
  /** The GeoIP databases; null if no database is configured. */
  readonly geoIp: GeoIp | null;
  /**
   * The clock for the time of the decision. The time of arrival would be too early: a pipelined request can wait for
   * minutes, and its key can expire meanwhile.
   */
  readonly clock: Clock;
}

/** Results of earlier steps, from which the facts (inputs of the access rules) are derived. */
interface FactInputs {
  readonly request: RequestData;
  /** The client address. */
  readonly address: IpAddress;
  /**
   * Whether the client address is on the Tor exit list. Null (unknown) if no usable list exists and the configuration
   * denies requests without a usable list.
   */
  readonly listed: boolean | null;
  /** The proxies whose forwarding headers are trusted on this connection. */
  readonly proxies: IpRanges;
  readonly match: RouteMatch | null;
}

/** Collects the facts about a request that the access rules need. */
export function factsOf({ request, address, listed, proxies, match }: FactInputs, sources: FactSources): RequestFacts {
  const { headers, connection } = request;
  const { remote, tls } = connection;
  return {
    environment: sources.environment,
    secure: remote !== null && isSecure(remote, tls !== null, headers.forwardedProto, proxies),
    clientAddress: address,
    torExit: isTorExit(listed, address, sources.geoIp),
    onionService:
      namesOnionService(headers.host) || namesOnionService(headers.origin) || namesOnionService(headers.referer),
    keyFormat: keyFormatOf(headers.apiKey),
    origin: originClaimOf(headers),
    resource: match?.route.resource ?? null,
    access: accessOf(request.method),
    now: sources.clock.now(),
  };
}

/**
 * Whether the address is a Tor exit. True if the Tor exit list or the GeoIP database lists it. Otherwise null
 * (unknown) if at least one of them has no result. A GeoIP database that is not configured lists no address.
 */
function isTorExit(listed: boolean | null, address: IpAddress, geoIp: GeoIp | null): boolean | null {
  const known = geoIp?.isTorExit(address) ?? (geoIp === null ? false : null);
  if (listed === true || known === true) return true;
  return listed === null || known === null ? null : false;
}

/**
 * Returns the origin that the client claims: the first of Origin, Referer and Host that is present. Joins repeated
 * values of a header, so that they match no allowed pattern.
 */
function originClaimOf(headers: DecisiveHeaders): OriginClaim | null {
  for (const header of ['origin', 'referer', 'host'] as const) {
    if (headers[header].length > 0) return { header, value: headers[header].join(', ') };
  }
  return null;
}
