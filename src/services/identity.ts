import { isIPv4, isIPv6 } from 'node:net';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { hostNameIn, hostsIn } from '../rest/host-header.js';
import { Refusal } from '../rest/refusal.js';
import type { AssertionVerifier, Tenant } from './assertion-verifier.js';

const decorator = 'tenant';
const merchantIdForm = /^[A-Za-z0-9_-]{1,64}$/;
const loopbackForm = /^(?:::1|(?:::ffff:)?127(?:\.[0-9]{1,3}){3})$/i;

/**
 * Accepts only requests that the gateway forwarded for a merchant, and requests to open routes. Rejects all others with
 * a 403, even for unknown paths, so that their senders cannot find out which paths exist. With `assertions`, the
 * gateway's signed assertion must name the same merchant and environment as the headers. With null, the request must
 * come from loopback with a local Host header.
 * @param assertions verifier of the gateway's signed assertions, or null
 * @param hosts lower-case names of this machine besides the loopback names
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
    // Open routes, such as `/livez`, show no merchant's records, so they need no merchant.
    if (isOpen) return;
    const named = tenantIn(request);
    const verified = assertions === null ? named : await verifyAssertion(request, assertions);
    if (named === null || verified?.merchantId !== named.merchantId || verified.environment !== named.environment) {
      throw forbidden();
    }
    request.setDecorator(decorator, verified);
  });
}

/** Returns the merchant and environment of a request that `requireIdentity` accepted. */
export function tenantOf(request: FastifyRequest): Tenant {
  return request.getDecorator<Tenant>(decorator);
}

function isFromLoopback({ socket }: FastifyRequest): boolean {
  return loopbackForm.test(socket.remoteAddress ?? '');
}

/**
 * Returns true if the Host header names this machine. This prevents DNS rebinding: an attacker's host name resolves to
 * this machine, and the browser sends that name. Open routes, such as `/livez`, also accept an IP address or no Host.
 * Probes and sidecars send such requests, but a browser under this attack cannot.
 */
function isForThisMachine(request: FastifyRequest, hosts: ReadonlySet<string>, isOpen: boolean): boolean {
  const [host, ...more] = hostsIn(request);
  if (host === undefined || more.length > 0) return isOpen && more.length === 0;
  const name = hostNameIn(host);
  const isLoopback = name === 'localhost' || name === '[::1]' || (isIPv4(name) && name.startsWith('127.'));
  return isLoopback || hosts.has(name) || (isOpen && (isIPv4(name) || isIPv6(/^\[(.*)\]$/.exec(name)?.[1] ?? '')));
}

function forbidden(): Refusal {
  return new Refusal(403, 'Forbidden');
}

/**
 * Verifies the gateway's assertion; null without one. Node joins repeated headers with a comma, which makes the
 * assertion invalid.
 */
function verifyAssertion(request: FastifyRequest, assertions: AssertionVerifier): Promise<Tenant> | null {
  const assertion = request.headers['x-gateway-assertion'];
  return typeof assertion === 'string' ? assertions.verify(assertion, pathOf(request)) : null;
}

/**
 * Returns the path of the matched route, with the decoded parameters encoded in the standard way. The assertion must be
 * for the upstream of this path. The path as sent can have other escapes, and so belong to another upstream.
 */
function pathOf({ url, routeOptions, params }: FastifyRequest): string {
  const values = params as Readonly<Record<string, string>>;
  if (routeOptions.url === undefined) return url.split('?', 1)[0] ?? '';
  return routeOptions.url.replace(/:(\w+)/g, (_, name: string) => encodeURIComponent(values[name] ?? ''));
}

/**
 * Reads merchant and environment from the gateway's headers; null if they are invalid. Node joins repeated headers with
 * a comma, which is invalid too.
 */
function tenantIn({ headers }: FastifyRequest): Tenant | null {
  const merchantId = headers['x-merchant-id'];
  const environment = headers['x-merchant-environment'];
  if (typeof merchantId !== 'string' || !merchantIdForm.test(merchantId)) return null;
  if (environment !== 'live' && environment !== 'test') return null;
  return { merchantId, environment };
}
