import t from 'tap';
import { withoutRedis } from '../adapters/redis-server.js';
import { Teardowns } from '../deployment/teardowns.js';
import { isOfPackage, totalsOf, traceWays, ways } from './trace.js';

/**
 * Upper limits for the gateway code that a request runs through, for a reader's sake. Lower them; do not raise them.
 */
const most: Readonly<Record<string, { readonly files: number; readonly functions: number; readonly lines: number }>> = {
  get: { files: 66, functions: 296, lines: 1695 },
  denied: { files: 56, functions: 196, lines: 1078 },
  post: { files: 66, functions: 300, lines: 1730 },
};

t.test(
  'a request runs through no more gateway code than these limits',
  { skip: withoutRedis, timeout: 240_000 },
  async (t) => {
    const own = new Teardowns();
    t.teardown(() => own.close());
    t.same(Object.keys(most), Object.keys(ways));
    const traces = await traceWays(own, Object.values(ways));
    for (const [index, [name, bounds]] of Object.entries(most).entries()) {
      const trace = traces[index];
      if (trace === undefined) throw new Error(`no trace of ${name}`);
      const totals = totalsOf(trace);
      t.comment(`${trace.title}: ${JSON.stringify(totals)}`);
      for (const what of ['files', 'functions', 'lines'] as const)
        t.ok(totals[what] <= bounds[what], `${trace.title}: ${totals[what]} ${what}, at most ${bounds[what]}`);
      const [decides, forwards] = ['edge/auth/steps.ts', 'edge/proxy/proxy.ts'].map((file) =>
        trace.functions.findIndex((ran) => ran.file === file),
      );
      const ofPlugin = trace.functions
        .filter(({ file, name }) => isOfPackage(file) && ['handler', 'handleUndici'].includes(name))
        .map(({ file, name }) => `${file}: ${name}`);
      t.ok((decides ?? -1) > 0, 'the request is decided');
      if (name === 'denied') {
        t.equal(forwards, -1, 'nothing is forwarded');
        t.same(ofPlugin, []);
      } else {
        t.ok((forwards ?? -1) > (decides ?? -1), 'the decision precedes forwarding');
        t.same(
          ofPlugin,
          ['@fastify/http-proxy/index.js: handler', '@fastify/reply-from/lib/request.js: handleUndici'],
          "the proxy plugin uses the gateway's own HTTP client",
        );
      }
    }
  },
);
