import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { AssertionVerifier } from './assertion-verifier.js';
import { Refusal } from '../rest/refusal.js';

/** Production or the sandbox. Records of one are never seen from the other. */
export type Environment = 'live' | 'test';

/** Whose records a request may see. */
export interface Tenant {
  readonly merchantId: string;
  readonly environment: Environment;
}

const decorator = 'tenant';
const merchantIdForm = /^[A-Za-z0-9_-]{1,64}$/;
const loopbackForm = /^(?:::1|(?:::ffff:)?127(?:\.[0-9]{1,3}){3})$/i;

/**
 * Lets in only what the gateway forwarded in the name of a merchant: what it signed, where there is a verifier; without
 * one, what comes from this machine. This comes before routing, so that nobody else learns which paths exist.
 */
export function requireIdentity(app: FastifyInstance, assertions: AssertionVerifier | null): void {
  app.decorateRequest(decorator, null);
  app.addHook('onRequest', async (request) => {
    // What is nobody's needs no name.
    if (request.routeOptions.config.isOpen === true && (assertions !== null || isFromLoopback(request))) return;
    const named = tenantIn(request);
    const believed =
      assertions === null ? (isFromLoopback(request) ? named : null) : await asserted(request, assertions);
    if (named === null || believed?.merchantId !== named.merchantId || believed.environment !== named.environment) {
      throw new Refusal(403, 'Forbidden');
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
