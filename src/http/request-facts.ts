import type { Clock, GeoIp, TorExits } from '../gateway/ports.js';
import type { RequestFacts } from '../policy/facts.js';
import type { IpAddress } from '../policy/ip-address.js';
import { compileIpRanges } from '../policy/ip-ranges.js';
import type { IpRanges } from '../policy/ip-ranges.js';
import { keyFormatOf } from '../policy/key-format.js';
import type { Environment } from '../policy/key-format.js';
import { namesOnionService } from '../policy/origins.js';
import type { OriginClaim } from '../policy/origins.js';
import { accessOf } from '../policy/permissions.js';
import { isSecure, resolveClientAddress } from './client-address.js';
import { GatewayError } from './errors.js';
import type { Exchange } from './exchange.js';
import type { DecisiveHeaders } from './request-headers.js';

const nobody = compileIpRanges([]);

/** What facts are made of besides the request. */
export interface FactSources {
  readonly environment: Environment;
  readonly trustedProxies: IpRanges;
  readonly torExits: Pick<TorExits, 'has' | 'digest'>;
  /** null: there are no databases. */
  readonly geoIp: GeoIp | null;
  readonly clock: Clock;
}

/**
 * Turns a request into facts.
 * @throws GatewayError where the caller's address cannot be known
 */
export function factsOf(exchange: Exchange, headers: DecisiveHeaders, sources: FactSources): RequestFacts {
  const { request, match, connection, clientAddress } = exchange;
  const { remote, tls } = connection;
  if (remote === null) throw new GatewayError('client_closed', 'the socket has no peer any more');
  if (clientAddress === null) {
    throw new GatewayError('invalid_forwarded_for', 'a trusted proxy sent an X-Forwarded-For entry that is no address');
  }
  const torExit = isTorExit(exchange, clientAddress, sources);
  exchange.whereabouts = sources.geoIp?.whereabouts(clientAddress) ?? null;
  return {
    environment: sources.environment,
    secure: isSecure(remote, tls !== null, headers.forwardedProto, believedProxies(exchange, sources.trustedProxies)),
    clientAddress,
    torExit,
    onionService:
      namesOnionService(headers.host) || namesOnionService(headers.origin) || namesOnionService(headers.referer),
    keyFormat: keyFormatOf(headers.apiKey),
    origin: originClaimOf(headers),
    resource: match?.route.resource ?? null,
    access: accessOf(request.method ?? ''),
    now: exchange.receivedAt,
  };
}

/** The client address, as the proxies say that are believed; null where nobody knows it. */
export function clientAddressOf({ connection, headers }: Exchange, believed: IpRanges): IpAddress | null {
  return connection.remote === null ? null : resolveClientAddress(connection.remote, headers.forwardedFor, believed);
}

/** The proxies whose headers are believed on this request's connection. */
export function believedProxies({ connection }: Exchange, trustedProxies: IpRanges): IpRanges {
  return connection.mayForward ? trustedProxies : nobody;
}

/** The list and the database are two witnesses: one that says so is enough, and one that cannot speak leaves it open. */
function isTorExit(exchange: Exchange, address: IpAddress, { torExits, geoIp }: FactSources): boolean | null {
  const listed = torExits.has(address);
  if (listed === true) exchange.torListDigest = torExits.digest;
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
