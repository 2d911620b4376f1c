import { readFileSync } from 'node:fs';
import t, { type Test } from 'tap';
import { withoutRedis } from '../adapters/redis-server.js';
import { Teardowns } from '../deployment/teardowns.js';
import { filesOf, filesOfRevocation, isOfPackage, totalsOf, type Trace, traceWays, ways } from './trace.js';

const page = readFileSync('docs/architecture.md', 'utf8');

/**
 * Upper limits for the gateway code that a request runs through, for a reader's sake. Lower them; do not raise them.
 */
const most: Readonly<Record<string, { readonly files: number; readonly functions: number; readonly lines: number }>> = {
  get: { files: 66, functions: 293, lines: 1690 },
  denied: { files: 56, functions: 196, lines: 1078 },
  post: { files: 66, functions: 297, lines: 1727 },
};

t.test(
  'a request runs through no more gateway code than these limits',
  { skip: withoutRedis, timeout: 280_000 },
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
    await t.test('the two documented paths match a trace', (t) => comparePaths(t, traces[0], own));
  },
);

/** The files that a section of the page names, in order. */
function filesIn(heading: string): string[] {
  const [part = ''] = page.slice(page.indexOf(`## ${heading}`) + 3).split('\n## ');
  const [numbered = ''] = part.split('\nA denied request ends');
  return [...numbered.matchAll(/`([a-z0-9/-]+\.ts)`/g)].map(([, file = '']) => file);
}

/** Compares the paths of the page with the trace of a GET and with a revocation. */
async function comparePaths(t: Test, trace: Trace | undefined, own: Teardowns): Promise<void> {
  const ran = trace === undefined ? [] : filesOf(trace);
  const documented = filesIn('The way of a GET');
  t.ok(documented.length > 20, 'the page names files');
  const unique = [...new Set(documented)];
  t.same(
    unique.filter((file) => !ran.includes(file)),
    [],
    'each file runs in a GET',
  );
  // The order is compared only from the steps on. Before them, Node calls back for each part of the request that it
  // reads, and some versions of Node do so in an order that cannot be traced.
  const ordered = unique.slice(unique.indexOf('edge/auth/steps.ts'));
  t.ok(ordered.length > 15, 'the steps are among them');
  t.same(
    ordered,
    ordered.toSorted((a, b) => ran.indexOf(a) - ran.indexOf(b)),
    'in this order from the steps on',
  );

  const revocation = await filesOfRevocation(own);
  t.same(
    filesIn('The way of a revocation').filter((file) => !revocation.has(file)),
    [],
    'each file runs in a revocation',
  );
}
