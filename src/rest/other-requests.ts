import type { FastifyInstance } from 'fastify';
import { METHODS } from '../node/http.js';
import { Refusal } from './refusal.js';

declare module 'fastify' {
  interface FastifyContextConfig {
    /** The route stands for the methods that its path does not take; these are those that it does, as `allow` lists them. */
    allow?: string;
  }
}

/** Has requests of its own by which a client asks for a tunnel, and which Node hands to no route. */
const tunnelMethod = 'CONNECT';

/**
 * Refuses, before a byte of the body is read, a path that is no route's, and a method that its path does not take. Belongs
 * behind what lets callers in: nobody else learns which paths there are.
 */
export function refuseOtherRequests(app: FastifyInstance): void {
  const taken = new Map<string, Set<string>>();
  for (const method of METHODS) {
    if (method !== tunnelMethod && !app.supportedMethods.includes(method)) app.addHttpMethod(method);
  }
  app.addHook('onRoute', ({ url, method, config }) => {
    if (config?.allow !== undefined) return;
    const methods = taken.get(url) ?? new Set();
    for (const one of [method].flat()) methods.add(one);
    taken.set(url, methods);
  });
  // A plugin is loaded once all routes are there.
  void app.register((scope, _options, done) => {
    for (const [url, methods] of taken) {
      const others = scope.supportedMethods.filter((method) => !methods.has(method));
      const allow = [...methods].toSorted().join(', ');
      scope.route({ method: others, url, exposeHeadRoute: false, config: { allow }, handler: () => null });
    }
    done();
  });
  app.addHook('onRequest', ({ is404, routeOptions: { config } }, reply, done) => {
    if (is404) {
      done(new Refusal(404, 'Route not found', [], 'route_not_found'));
    } else if (config.allow !== undefined) {
      reply.header('allow', config.allow);
      done(new Refusal(405, `Method not allowed: this path takes ${config.allow}`));
    } else {
      done();
    }
  });
}
