// The gateway as `merchant-gateway gateway` starts it, but for @fastify/http-proxy, in whose place is its one route and
// nothing more: what the plugin costs a request is the difference.
import { register } from 'node:module';

const moduleOf = (source) => `data:text/javascript,${encodeURIComponent(source)}`;
const route = moduleOf(`
  export default (app, { preHandler, httpMethods }, done) => {
    app.route({ method: httpMethods, url: '/', preHandler, handler: () => undefined });
    done();
  };
`);
register(
  moduleOf(`
    export const resolve = (name, context, next) =>
      name === '@fastify/http-proxy' ? { url: ${JSON.stringify(route)}, shortCircuit: true } : next(name, context);
  `),
);
await import('../../../dist/cli/main.js');
