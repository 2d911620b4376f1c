import { isIPv4, isIPv6 } from 'node:net';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { bareHost, isLoopback } from '../config/rules/loopback.js';
import { parseRemoteAddress, resolveClientAddress } from '../policy/client-address.js';
import type { IpAddress } from '../policy/ip-address.js';
import { compileIpRanges, type IpRanges } from '../policy/ip-ranges.js';
import { hostNameIn, hostsIn } from '../rest/host-header.js';
import { Refusal } from '../rest/refusal.js';
import type { ServerTls } from '../tls/server-tls.js';

/** How clients reach the admin API. */
export interface RegistryAccess {
  /** TLS of the listener; stopped when the app is closed. Null: plain HTTP. */
  readonly tls: ServerTls | null;
  /**
   * Further host names of the API. The names in the certificate, loopback names and the local address of the connection
   * are always accepted.
   */
  readonly hosts: readonly string[];
  /** Addresses and CIDRs of the reverse proxies; null without proxies. */
  readonly behindProxy: readonly string[] | null;
}

/** Access without TLS and proxies, for a listener on loopback. */
export const localAccess: RegistryAccess = { tls: null, hosts: [], behindProxy: null };

const decorator = 'clientAddress';
/**
 * Accepted values of Sec-Fetch-Site: with these values, no page of another origin caused the request. Undefined: the
 * header is missing, as in requests of clients that are not browsers.
 */
const ownSites: ReadonlySet<string | undefined> = new Set([undefined, 'same-origin', 'none']);

/**
 * Rejects requests that are not meant for this API, before `next` authenticates them:
 *
 * - With 421, if Host is repeated or is not a name of this API. Otherwise an attacker could make the host name of a web
 *   page resolve to this machine (DNS rebinding). Probes and metrics, which need no token, also accept an IP address
 *   or a missing Host. Probes send such requests, and DNS rebinding is not possible without a name.
 * - With 403, if a web page of another origin caused the request.
 * - With 403, if the API has proxies but no TLS, and a request comes neither from a proxy nor from this machine. Others
 *   on the network could read the token of such a request. Probes and metrics need no token, so they are exempt.
 *
 * @param next adds the hooks that authenticate requests
 * @param onRefused called for each rejected request
 */
export function requireOwnHost(
  { tls, hosts, behindProxy }: RegistryAccess,
  next: (app: FastifyInstance) => void,
  onRefused: (request: FastifyRequest, refusal: Refusal) => void,
): (app: FastifyInstance) => void {
  const own = new Set(hosts.map(bareHost));
  const proxies = compileIpRanges(behindProxy ?? []);
  const isOwn = (name: string, { socket }: FastifyRequest): boolean =>
    isLoopback(name) ||
    own.has(bareHost(name)) ||
    bareHost(name) === parseRemoteAddress(socket.localAddress)?.text ||
    tls?.covers(bareHost(name)) === true;
  return (app) => {
    noteClientAddress(app, behindProxy);
    app.addHook('onRequest', (request, _reply, done) => {
      const peer = parseRemoteAddress(request.socket.remoteAddress);
      // A sign-in (POST) is an open route too, but returns a token, so the exemptions for open routes exclude it.
      const isOpen = request.routeOptions.config.isOpen === true && request.method !== 'POST';
      const [host, ...more] = hostsIn(request);
      const name = hostNameIn(host ?? '');
      const isProbe = isOpen && (host === undefined || isIpLiteral(name));
      const schemes = tls !== null ? ['https'] : behindProxy === null ? ['http'] : ['https', 'http'];
      const refuse = (refusal: Refusal): void => {
        onRefused(request, refusal);
        done(refusal);
      };
      if (more.length > 0 || (!isProbe && (name === '' || !isOwn(name, request)))) refuse(foreignHost());
      else if (!isFromOwnPage(request, schemes, host ?? '')) refuse(foreignOrigin());
      else if (tls === null && behindProxy !== null && !isOpen && !isProtected(peer, proxies)) refuse(plainHttp());
      else done();
    });
    next(app);
  };
}

/**
 * Stores the client's address with each request, for `clientAddressOf`.
 * @param behindProxy addresses and CIDRs of the proxies
 */
export function noteClientAddress(app: FastifyInstance, behindProxy: readonly string[] | null): void {
  const proxies = compileIpRanges(behindProxy ?? []);
  app.decorateRequest(decorator, null);
  app.addHook('onRequest', (request, _reply, done) => {
    const peer = parseRemoteAddress(request.socket.remoteAddress);
    request.setDecorator(decorator, peer && clientOf(peer, request, proxies));
    done();
  });
}

/**
 * Rejects requests that come over the network but not from a proxy. Call this for an app that has proxies but no TLS:
 * others on the network could read the cookies in such a request.
 */
export function requireProxy(app: FastifyInstance, behindProxy: readonly string[]): void {
  const proxies = compileIpRanges(behindProxy);
  app.addHook('onRequest', (request, _reply, done) => {
    const peer = parseRemoteAddress(request.socket.remoteAddress);
    done(isProtected(peer, proxies) ? undefined : plainHttp());
  });
}

/**
 * Returns the address of a request's client. If the connection comes from a proxy of `registry.behindProxy`, the
 * address is taken from X-Forwarded-For; otherwise it is the address of the connection. Null if a proxy sent an invalid
 * address, or if the connection is already closed.
 */
export function clientAddressOf(request: FastifyRequest): IpAddress | null {
  return request.getDecorator<IpAddress | null>(decorator);
}

function clientOf(peer: IpAddress, { headers }: FastifyRequest, proxies: IpRanges): IpAddress | null {
  const forwardedFor = headers['x-forwarded-for'];
  return resolveClientAddress(peer, forwardedFor === undefined ? [] : [forwardedFor].flat(), proxies);
}

function isIpLiteral(name: string): boolean {
  return isIPv4(name) || isIPv6(/^\[(.*)\]$/.exec(name)?.[1] ?? '');
}

/**
 * True if a page of this API, or a client that is not a browser, sent the request. Browsers set Sec-Fetch-Site and
 * Origin, and pages cannot change these headers.
 */
function isFromOwnPage({ headers }: FastifyRequest, schemes: readonly string[], host: string): boolean {
  const site = headers['sec-fetch-site'];
  if (!ownSites.has(Array.isArray(site) ? site.join() : site)) return false;
  const { origin } = headers;
  return origin === undefined || schemes.some((scheme) => isSameOrigin(origin, `${scheme}://${host}`));
}

function isSameOrigin(one: string, other: string): boolean {
  return URL.canParse(one) && URL.canParse(other) && one === new URL(one).origin && one === new URL(other).origin;
}

function isProtected(peer: IpAddress | null, proxies: IpRanges): boolean {
  return peer !== null && (proxies.contains(peer) || isLoopback(peer.text));
}

function foreignHost(): Refusal {
  return new Refusal(
    421,
    'The Host header does not name this API: use a host name that its certificate contains, or add the host name of this request to registry.hosts',
  );
}

function foreignOrigin(): Refusal {
  return new Refusal(
    403,
    'This API rejects requests from web pages of other origins: call it from a program',
    [],
    'foreign_origin',
  );
}

function plainHttp(): Refusal {
  return new Refusal(
    403,
    'Plain HTTP is accepted only from the proxies in registry.behindProxy: connect through one of them',
    [],
    'plain_http',
  );
}
