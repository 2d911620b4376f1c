import type { FastifyInstance, FastifyRequest } from 'fastify';
import { hostsIn } from '../../rest/host-header.js';
import { Refusal } from '../../rest/refusal.js';

const policy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self'",
  "font-src 'self'",
  "connect-src 'self'",
  "form-action 'self'",
  "base-uri 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join('; ');

/**
 * Headers of all responses. They limit what a page can load, which sites can embed it, and what it reveals to other
 * sites.
 */
const headers = {
  'content-security-policy': policy,
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
};

/** Adds the security headers to all responses of an app. Call it before all other hooks. */
export function addSecurityHeaders(app: FastifyInstance): void {
  app.addHook('onRequest', (_request, reply, done) => {
    reply.headers(headers);
    done();
  });
}

/** The HTTP methods that change nothing. */
const safeMethods: ReadonlySet<string> = new Set(['GET', 'HEAD']);

/**
 * Returns a refusal if a request to the console's API was not sent by a page of the console; otherwise null. The
 * session cookie does not prove this: browsers also send a Strict cookie with requests of pages on another port of the
 * host. So this function checks `origin` and `sec-fetch-site`, which pages cannot change.
 * @param own the console's origin
 */
function foreignOriginOf({ method, headers: { origin, ...others } }: FastifyRequest, own: string): Refusal | null {
  const { 'sec-fetch-site': site = 'same-origin' } = others;
  const isOwn = origin === own || (origin === undefined && safeMethods.has(method));
  if (isOwn && site === 'same-origin') return null;
  const message = 'Only pages of the console may use the console API. Scripts must use the admin API with a token';
  return new Refusal(403, message, [], 'foreign_origin');
}

/** A function that is called for each refused request. */
export type OnRefused = (request: FastifyRequest, refusal: Refusal) => void;

/** Rejects a request with 421 if its Host is not the host of the console. This prevents DNS rebinding. */
export function requireConsoleHost(app: FastifyInstance, origin: () => string, onRefused: OnRefused): void {
  refuse(app, onRefused, (request) => {
    const [host, ...more] = hostsIn(request);
    if (more.length === 0 && host?.toLowerCase() === new URL(origin()).host) return null;
    return new Refusal(
      421,
      'The Host header does not name this console: use the host in registry.console.origin, or change that option',
    );
  });
}

/** Rejects requests that did not come from a page of the console. */
export function requireConsoleOrigin(app: FastifyInstance, origin: () => string, onRefused: OnRefused): void {
  refuse(app, onRefused, (request) => foreignOriginOf(request, origin()));
}

/** @param refusalOf returns the refusal of a request; null if the request is allowed */
function refuse(
  app: FastifyInstance,
  onRefused: OnRefused,
  refusalOf: (request: FastifyRequest) => Refusal | null,
): void {
  app.addHook('onRequest', (request, _reply, done) => {
    const refusal = refusalOf(request);
    if (refusal !== null) onRefused(request, refusal);
    done(refusal ?? undefined);
  });
}
