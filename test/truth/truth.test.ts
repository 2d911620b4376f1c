import path from 'node:path';
import t from 'tap';
import { withoutRedis } from '../adapters/redis-server.js';
import { run } from './run.js';

// A short run with mild faults. `npm run soak:truth` runs for a configurable time with every fault.
t.test('responses of registry and gateways stay correct under faults', { skip: withoutRedis }, async (t) => {
  const rounds = await run(t, {
    ...{ topology: 'single', registries: 1, gateways: 2, maxStaleSeconds: 3, dist: path.resolve('dist') },
    ...{ seed: 20261123, seconds: 6, changes: 1000, faults: ['kill-registry', 'stop-gateway', 'delay', 'cut'] },
    ...{ callers: 1, pauseMilliseconds: 10, changers: 2, holdMilliseconds: 3000 },
    ...{ sequence: null, keys: 0 },
    // Build machines are often busy, so slow responses are not violations here.
    limits: { decideMilliseconds: 30_000, inForceMilliseconds: 35_000 },
    onRound: ({ number, what, changes, afterInForce, violations }) => {
      t.comment(`${number}: ${what}: ${changes} changes, ${afterInForce} requests after "in force"`);
      t.same(violations, []);
    },
  });
  const sum = (counts: number[]): number => counts.reduce((total, count) => total + count, 0);
  t.ok(sum(rounds.map(({ inForce }) => inForce)) > 0, 'some changes were in force');
  t.ok(sum(rounds.map(({ afterInForce }) => afterInForce)) > 0, 'some requests started after "in force"');
});
