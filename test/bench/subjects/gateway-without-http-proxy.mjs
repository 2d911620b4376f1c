// The gateway as `merchant-gateway gateway` starts it, but for @fastify/http-proxy, in whose place is its one route and
// nothing more: what the plugin costs a request is the difference.
import Module, { createRequire } from 'node:module';

const require = createRequire(import.meta.url);
const plugin = require.resolve('@fastify/http-proxy');
const oneRoute = (app, { preHandler, httpMethods }, done) => {
  app.route({ method: httpMethods, url: '/', preHandler, handler: () => undefined });
  done();
};
require.cache[plugin] = Object.assign(new Module(plugin), { exports: oneRoute, loaded: true });
await import('../../../dist/cli/main.js');
const { httpProxy } = await import('../../../dist/http/http-proxy.js');
if (httpProxy !== oneRoute) throw new Error('the gateway has loaded the plugin all the same');
