import { readFileSync } from 'node:fs';
import { totalmem } from 'node:os';
import path from 'node:path';
import fc from 'fast-check';
import t from 'tap';
import { parse } from 'yaml';
import { configCommand } from '../../src/cli/config.js';
import { configNotes } from '../../src/config/config-notes.js';
import { loadConfig } from '../../src/config/load.js';
import { fitToMemory, mebibyte, planMemory } from '../../src/config/memory-plan.js';
import type { Config } from '../../src/config/schema.js';

const https = { certFile: 'a', keyFile: 'b' };

function configOf(options: object = {}): Config {
  return loadConfig({ text: JSON.stringify({ listen: { https }, keyStore: { redis: { replicas: 0 } }, ...options }) });
}

t.test("the documented defaults fit in the chart's memory limit, and idle connections in 60 % of it", (t) => {
  const values = parse(readFileSync('helm/values.yaml', 'utf8')) as {
    gateway: { resources: { limits: { memory: string } } };
  };
  const [, number = '', unit = ''] = /^(\d+)(Mi|Gi)$/.exec(values.gateway.resources.limits.memory) ?? [];
  const memory = Number(number) * (unit === 'Gi' ? 1024 : 1) * mebibyte;
  const config = configOf({ limits: { memory } });
  const plan = planMemory(config);
  t.equal(plan.allows.connections, config.limits.connections);
  t.equal(plan.allows.maxEntries, config.keyStore.cache.maxEntries);
  t.ok(plan.process + plan.connections <= 0.6 * memory);
  t.ok(plan.bufferedBodyBytes >= 64 * mebibyte);
  t.same(
    configNotes('gateway', config).map(({ path }) => path),
    ['keyStore.cache.maxEntries'],
    'only the note about the memory of records',
  );
  t.end();
});

t.test('a note names a route that replaces a response of the gateway itself', (t) => {
  const route = (path: string) => ({ path, upstream: 'payouts', resource: 'payouts' });
  const config = configOf({ routes: [route('/payouts'), route('/whoami')] });
  const notes = (command: 'gateway' | 'registry') =>
    configNotes(command, config).filter(({ path }) => path.startsWith('routes'));
  t.same(notes('gateway'), [{ path: 'routes[1].path', message: "replaces the gateway's own response to /whoami" }]);
  t.same(notes('registry'), []);
  t.end();
});

t.test('for any configuration, connections, bodies and caches fit together within their configured limits', (t) => {
  const fits = fc.property(
    fc.integer({ min: 256, max: 100_000 }),
    fc.integer({ min: 1, max: 1_000_000 }),
    fc.integer({ min: 1, max: 10_000_000 }),
    fc.integer({ min: 1, max: 8 }),
    (mebibytes, connections, maxEntries, processes) => {
      const config = configOf({
        limits: { memory: mebibytes * processes * mebibyte, connections },
        keyStore: { cache: { maxEntries } },
      });
      const plan = planMemory(config, processes);
      const { memory, allows } = plan;
      const sum = plan.process + plan.caches + plan.connections + plan.bufferedBodyBytes;
      const isWithin = allows.connections <= connections && allows.maxEntries <= maxEntries;
      return memory === mebibytes * mebibyte && sum <= memory && isWithin && allows.connections > 0;
    },
  );
  t.doesNotThrow(() => {
    fc.assert(fits);
  });
  t.end();
});

t.test('fitting a fitted configuration changes nothing', (t) => {
  const config = configOf({ limits: { connections: 100_000 }, keyStore: { cache: { maxEntries: 10_000_000 } } });
  const system = 700 * mebibyte;
  const plan = planMemory(config, 2, 2 * system);
  const fitted = fitToMemory(config, 2, 2 * system);
  const again = planMemory(fitted);
  t.same(again.allows, { ...plan.allows, maxEntries: again.allows.maxEntries });
  t.ok(plan.allows.maxEntries - again.allows.maxEntries <= 1);
  t.equal(again.bufferedBodyBytes, plan.bufferedBodyBytes);
  t.equal(fitted.limits.connections, plan.allows.connections);
  t.equal(fitted.keyStore.cache.maxEntries, plan.allows.maxEntries);
  t.equal(fitted.throttle.maxSources, plan.allows.maxSources);
  t.ok(plan.allows.connections < 100_000 && plan.allows.maxEntries < 10_000_000);
  t.end();
});

t.test('without limits.memory the plan uses the memory limit of the process', (t) => {
  const given = process.constrainedMemory.bind(process);
  t.teardown(() => (process.constrainedMemory = given));
  for (const [limit, expected] of [
    [512 * mebibyte, 512 * mebibyte],
    [0, totalmem()], // unknown
    [2 ** 64, totalmem()], // unlimited
  ] as const) {
    process.constrainedMemory = () => limit;
    t.match(planMemory(configOf()), { memory: expected, source: 'system' });
  }
  t.end();
});

t.test('config check prints what the memory allows, and what does not fit', (t) => {
  const directory = t.testdir({
    'g.yaml': `listen: { https: ${JSON.stringify(https)} }\nlimits: { memory: 536870912 }\nregistry: { tokenFile: t }\n`,
  });
  const check = (...args: string[]): { out: string; err: string } => {
    const written = { out: '', err: '' };
    const io = { out: (part: string) => void (written.out += part), err: (part: string) => void (written.err += part) };
    configCommand(io, {}).parse(['check', '--config', path.join(directory, 'g.yaml'), ...args], { from: 'user' });
    return written;
  };
  const { connections } = planMemory(configOf({ limits: { memory: 512 * mebibyte } })).allows;
  t.ok(connections < 10_000);
  const { out, err } = check('--for', 'gateway');
  t.match(
    out,
    `# The process will use these limits: limits.connections ${connections}, keyStore.cache.maxEntries 100000, `,
  );
  t.match(
    err,
    `  limits.connections: is 10000, but only ${connections} fit into the 512 MiB of memory that the process may use, so the gateway uses ${connections}. `,
  );
  t.same(
    loadConfig({ text: out }),
    loadConfig({ file: path.join(directory, 'g.yaml') }),
    'the output can be loaded again',
  );
  const json = JSON.parse(check('--json').out) as object;
  t.match(json, { limits: { connections: 10_000 }, memoryPlan: { memory: 512 * mebibyte, allows: { connections } } });
  const ofRegistry = check('--for', 'registry');
  t.notMatch(ofRegistry.out + ofRegistry.err, /fit into|limits\.connections:? (?:is )?\d/);
  t.end();
});
