import type { FastifyInstance, FastifyRequest } from 'fastify';
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
 * Lets in only what the gateway forwarded: from this machine, and in the name of a merchant. This comes before routing,
 * so that nobody else learns which paths exist.
 */
export function requireIdentity(app: FastifyInstance): void {
  app.decorateRequest(decorator, null);
  app.addHook('onRequest', (request, _reply, done) => {
    const tenant = loopbackForm.test(request.socket.remoteAddress ?? '') ? tenantIn(request) : null;
    if (tenant === null) {
      done(new Refusal(403, 'Forbidden'));
      return;
    }
    request.setDecorator(decorator, tenant);
    done();
  });
}

/** The tenant of a request that was let in. */
export function tenantOf(request: FastifyRequest): Tenant {
  return request.getDecorator<Tenant>(decorator);
}

/** Node joins a repeated header with a comma, which neither form admits. */
function tenantIn({ headers }: FastifyRequest): Tenant | null {
  const merchantId = headers['x-merchant-id'];
  const environment = headers['x-merchant-environment'];
  if (typeof merchantId !== 'string' || !merchantIdForm.test(merchantId)) return null;
  if (environment !== 'live' && environment !== 'test') return null;
  return { merchantId, environment };
}
