import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
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
 * session cookie does not show where the request came from: browsers also send a Strict cookie with requests from
 * another port of the host. Pages cannot change `origin` and `sec-fetch-site`.
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
  app.addHook('onRequest', (request, _reply, done) => {
    const [host, ...more] = hostsIn(request);
    const isOwn = more.length === 0 && host?.toLowerCase() === new URL(origin()).host;
    if (isOwn) {
      done();
      return;
    }
    const refusal = new Refusal(421, 'The Host header is not the host of registry.console.origin');
    onRefused(request, refusal);
    done(refusal);
  });
}

/** Rejects requests that did not come from a page of the console. */
export function requireConsoleOrigin(app: FastifyInstance, origin: () => string, onRefused: OnRefused): void {
  app.addHook('onRequest', (request: FastifyRequest, _reply: FastifyReply, done: (error?: Error) => void) => {
    const refusal = foreignOriginOf(request, origin());
    if (refusal === null) {
      done();
      return;
    }
    onRefused(request, refusal);
    done(refusal);
  });
}
