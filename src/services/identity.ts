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
 * a 403, even for unknown paths, so that their senders cannot find out which paths exist.
 * With a verifier of assertions, the gateway's signed assertion must name the same merchant and environment as the
 * headers. Without a verifier, each request must come from loopback with a local Host header.
 * @param assertions verifier of the gateway's signed assertions; null for no verifier
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
    // Open routes, such as `/livez`, show no merchant's records, so their requests need no merchant headers.
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
 * Verifies the gateway's assertion; null for a request without an assertion. Node joins repeated headers with a comma,
 * which makes the assertion invalid.
 */
function verifyAssertion(request: FastifyRequest, assertions: AssertionVerifier): Promise<Tenant> | null {
  const assertion = request.headers['x-gateway-assertion'];
  return typeof assertion === 'string' ? assertions.verify(assertion, pathOf(request)) : null;
}

/**
 * Returns the path that determines which upstream the assertion must name. A client can percent-encode any character,
 * so the path as sent could match the route of another upstream. This function therefore takes the path of the matched
 * route, and encodes the decoded parameters in the standard way. If no route matches, it returns the path as sent.
 */
function pathOf({ url, routeOptions, params }: FastifyRequest): string {
  const values = params as Readonly<Record<string, string>>;
  if (routeOptions.url === undefined) return url.split('?', 1)[0] ?? '';
  return routeOptions.url.replace(/:(\w+)/g, (_, name: string) => encodeURIComponent(values[name] ?? ''));
}

/**
 * Reads merchant and environment from the gateway's headers; null if a header is missing or invalid. Node joins
 * repeated headers with a comma, so repeated headers are invalid too.
 */
function tenantIn({ headers }: FastifyRequest): Tenant | null {
  const merchantId = headers['x-merchant-id'];
  const environment = headers['x-merchant-environment'];
  if (typeof merchantId !== 'string' || !merchantIdForm.test(merchantId)) return null;
  if (environment !== 'live' && environment !== 'test') return null;
  return { merchantId, environment };
}
