import { isIPv4, isIPv6 } from 'node:net';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { Refusal } from '../rest/refusal.js';
import type { AssertionVerifier, Tenant } from './assertion-verifier.js';

const decorator = 'tenant';
const merchantIdForm = /^[A-Za-z0-9_-]{1,64}$/;
const loopbackForm = /^(?:::1|(?:::ffff:)?127(?:\.[0-9]{1,3}){3})$/i;
const hostForm = /^(?<name>\[[^\]]*\]|[^:[\]]+)(?::[0-9]*)?$/;

/**
 * Lets in only what the gateway forwarded in the name of a merchant: what it signed, where there is a verifier; without
 * one, what comes from this machine and is for it. This comes before routing, so that nobody else learns which paths exist.
 * @param hosts names of this machine beside the loopback ones, in lower case
 */
export function requireIdentity(
  app: FastifyInstance,
  assertions: AssertionVerifier | null,
  hosts: ReadonlySet<string>,
): void {
  app.decorateRequest(decorator, null);
  app.addHook('onRequest', async (request) => {
    const isOpen = request.routeOptions.config.isOpen === true;
    const isLocal = isFromLoopback(request) && isForThisMachine(request, hosts, isOpen);
    if (assertions === null && !isLocal) throw forbidden();
    // What is nobody's needs no name.
    if (isOpen) return;
    const named = tenantIn(request);
    const believed = assertions === null ? named : await asserted(request, assertions);
    if (named === null || believed?.merchantId !== named.merchantId || believed.environment !== named.environment) {
      throw forbidden();
    }
    request.setDecorator(decorator, believed);
  });
}

/** The tenant of a request that was let in. */
export function tenantOf(request: FastifyRequest): Tenant {
  return request.getDecorator<Tenant>(decorator);
}

function isFromLoopback({ socket }: FastifyRequest): boolean {
  return loopbackForm.test(socket.remoteAddress ?? '');
}

/**
 * DNS rebinding makes the name of a page in a browser one of this machine, and the browser sends that name as Host. An open route
 * also takes any address and no Host at all, as probes and sidecars send them: neither can be rebound.
 */
function isForThisMachine(request: FastifyRequest, hosts: ReadonlySet<string>, isOpen: boolean): boolean {
  const [host, ...more] = hostsIn(request);
  if (host === undefined || more.length > 0) return isOpen && more.length === 0;
  const name = hostForm.exec(host)?.groups?.name?.toLowerCase() ?? '';
  const isLoopback = name === 'localhost' || name === '[::1]' || (isIPv4(name) && name.startsWith('127.'));
  return isLoopback || hosts.has(name) || (isOpen && (isIPv4(name) || isIPv6(/^\[(.*)\]$/.exec(name)?.[1] ?? '')));
}

/** Of two Host headers Node keeps the first, and tells nobody. */
function hostsIn({ raw: { rawHeaders } }: FastifyRequest): string[] {
  return rawHeaders.filter((_, index) => index % 2 === 1 && rawHeaders[index - 1]?.toLowerCase() === 'host');
}

function forbidden(): Refusal {
  return new Refusal(403, 'Forbidden');
}

/** Node joins a repeated header with a comma, which is no assertion. */
function asserted(request: FastifyRequest, assertions: AssertionVerifier): Promise<Tenant> | null {
  const assertion = request.headers['x-gateway-assertion'];
  return typeof assertion === 'string' ? assertions.verify(assertion, pathOf(request)) : null;
}

/** The path as the router read it: an encoded spelling would name another upstream than the one that serves it. */
function pathOf({ url, routeOptions, params }: FastifyRequest): string {
  const values = params as Readonly<Record<string, string>>;
  if (routeOptions.url === undefined) return url.split('?', 1)[0] ?? '';
  return routeOptions.url.replace(/:(\w+)/g, (_, name: string) => encodeURIComponent(values[name] ?? ''));
}

/** Node joins a repeated header with a comma, which neither form admits. */
function tenantIn({ headers }: FastifyRequest): Tenant | null {
  const merchantId = headers['x-merchant-id'];
  const environment = headers['x-merchant-environment'];
  if (typeof merchantId !== 'string' || !merchantIdForm.test(merchantId)) return null;
  if (environment !== 'live' && environment !== 'test') return null;
  return { merchantId, environment };
}
