import { isIPv4, isIPv6 } from 'node:net';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { isLoopback } from '../config/rules/loopback.js';
import { parseRemoteAddress, resolveClientAddress } from '../policy/client-address.js';
import { type IpAddress, parseIpAddress } from '../policy/ip-address.js';
import { compileIpRanges, type IpRanges } from '../policy/ip-ranges.js';
import { hostNameIn, hostsIn } from '../rest/host-header.js';
import { Refusal } from '../rest/refusal.js';
import type { ServerTls } from '../tls/server-tls.js';

/** How clients reach the admin API. */
export interface RegistryAccess {
  /** TLS of the listener, which the app closes; null for plain HTTP. */
  readonly tls: ServerTls | null;
  /**
   * Further host names of the API. The names in the certificate, loopback names and the connection's address always
   * count.
   */
  readonly hosts: readonly string[];
  /** Addresses and CIDRs of the reverse proxies; null without proxies. */
  readonly behindProxy: readonly string[] | null;
}

/** Access without TLS and proxies, for a listener on loopback. */
export const localAccess: RegistryAccess = { tls: null, hosts: [], behindProxy: null };

const decorator = 'clientAddress';
/** Values of Sec-Fetch-Site in requests that no page of another origin caused. */
const ownSites: ReadonlySet<string | undefined> = new Set([undefined, 'same-origin', 'none']);

/**
 * Rejects requests that are not meant for this API, before `next` authenticates them:
 *
 * - With 421, a Host of another server, because a web page may have made its own name resolve to this machine (DNS
 *   rebinding). Open routes also accept an IP address or no Host, because probes send such requests and DNS rebinding
 *   cannot.
 * - With 403, requests that a web page of another origin caused.
 * - With 403, plain HTTP from the network other than from the proxies, because the token would be readable there. Open
 *   routes take no token, so probes may use plain HTTP.
 *
 * @param onRefused gets each rejected request
 */
export function requireOwnHost(
  { tls, hosts, behindProxy }: RegistryAccess,
  next: (app: FastifyInstance) => void,
  onRefused: (request: FastifyRequest, refusal: Refusal) => void,
): (app: FastifyInstance) => void {
  const own = new Set(hosts.map(canonical));
  const proxies = compileIpRanges(behindProxy ?? []);
  const isOwn = (name: string, { socket }: FastifyRequest): boolean =>
    isLoopback(name) ||
    own.has(canonical(name)) ||
    canonical(name) === parseRemoteAddress(socket.localAddress)?.text ||
    tls?.covers(canonical(name)) === true;
  return (app) => {
    noteClientAddress(app, behindProxy);
    app.addHook('onRequest', (request, _reply, done) => {
      const peer = parseRemoteAddress(request.socket.remoteAddress);
      const isOpen = request.routeOptions.config.isOpen === true;
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
 * Rejects plain HTTP from the network that does not come from a proxy, because cookies would be readable there. For an
 * app without TLS behind proxies.
 */
export function requireProxy(app: FastifyInstance, behindProxy: readonly string[]): void {
  const proxies = compileIpRanges(behindProxy);
  app.addHook('onRequest', (request, _reply, done) => {
    const peer = parseRemoteAddress(request.socket.remoteAddress);
    done(isProtected(peer, proxies) ? undefined : plainHttp());
  });
}

/**
 * Returns the address of a request's client. It is the one in X-Forwarded-For if the peer is a proxy of
 * `registry.behindProxy`, otherwise the peer's own. Null if a proxy sent an invalid address.
 */
export function clientAddressOf(request: FastifyRequest): IpAddress | null {
  return request.getDecorator<IpAddress | null>(decorator);
}

function clientOf(peer: IpAddress, { headers }: FastifyRequest, proxies: IpRanges): IpAddress | null {
  const forwardedFor = headers['x-forwarded-for'];
  return resolveClientAddress(peer, forwardedFor === undefined ? [] : [forwardedFor].flat(), proxies);
}

/** Returns a host in a form that can be compared: a name in lower case, or an IP address without brackets. */
function canonical(host: string): string {
  const name = host.toLowerCase().replace(/^\[(.*)\]$/, '$1');
  return parseIpAddress(name)?.text ?? name;
}

function isIpLiteral(name: string): boolean {
  return isIPv4(name) || isIPv6(/^\[(.*)\]$/.exec(name)?.[1] ?? '');
}

/**
 * Whether a page of this API sent the request, or a client that is not a browser. Browsers set these headers, and pages
 * cannot change them.
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
    'The Host header is not a host of this API: use a host of its certificate, or add the host to registry.hosts',
  );
}

function foreignOrigin(): Refusal {
  return new Refusal(403, 'Web pages of other origins may not use this API', [], 'foreign_origin');
}

function plainHttp(): Refusal {
  return new Refusal(
    403,
    'Plain HTTP is accepted only from the proxies in registry.behindProxy: connect through one of them',
    [],
    'plain_http',
  );
}
