import type { Clock, GeoIp, TorExits } from '../../gateway/ports.js';
import type { RequestFacts } from '../../policy/facts.js';
import type { IpAddress } from '../../policy/ip-address.js';
import type { IpRanges } from '../../policy/ip-ranges.js';
import { type Environment, keyFormatOf } from '../../policy/key-format.js';
import { namesOnionService, type OriginClaim } from '../../policy/origins.js';
import { accessOf } from '../../policy/permissions.js';
import { isSecure } from './client-address.js';
import type { RequestData, DecisiveHeaders } from './request-data.js';
import type { RouteMatch } from './routes.js';

/** What facts are made of besides the request. */
export interface FactSources {
  readonly environment: Environment;
  readonly trustedProxies: IpRanges;
  readonly torExits: Pick<TorExits, 'has' | 'digest'>;
  /** null: there are no databases. */
  readonly geoIp: GeoIp | null;
  readonly clock: Clock;
}

/** What the steps before have made out of a request. */
interface Seen {
  readonly request: RequestData;
  /** The client's. */
  readonly address: IpAddress;
  /** Whether that is on the list of Tor exits; null where that cannot be told. */
  readonly listed: boolean | null;
  /** Those whose headers are believed. */
  readonly proxies: IpRanges;
  readonly match: RouteMatch | null;
}

/** All that the rules look at. */
export function factsOf({ request, address, listed, proxies, match }: Seen, sources: FactSources): RequestFacts {
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
    now: request.receivedAt,
  };
}

/** The list and the database are two witnesses: one that says so is enough, and one that cannot speak leaves it open. */
function isTorExit(listed: boolean | null, address: IpAddress, geoIp: GeoIp | null): boolean | null {
  const known = geoIp?.isTorExit(address) ?? (geoIp === null ? false : null);
  if (listed === true || known === true) return true;
  return listed === null || known === null ? null : false;
}

/** The first present of Origin, Referer and Host decides, alone. A repeated one is taken whole and so matches nothing. */
function originClaimOf(headers: DecisiveHeaders): OriginClaim | null {
  for (const header of ['origin', 'referer', 'host'] as const) {
    if (headers[header].length > 0) return { header, value: headers[header].join(', ') };
  }
  return null;
}
