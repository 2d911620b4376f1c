import { Counter, Registry } from 'prom-client';
import t from 'tap';
import { WorkerMetrics } from '../../src/cli/workers/worker-processes.js';
import { aggregateMetrics } from '../../src/telemetry/aggregate-metrics.js';
import type { MetricObjects } from '../../src/telemetry/aggregate-metrics.js';

/** The metrics of a worker with the given count. */
async function figuresOf(count: number): Promise<MetricObjects> {
  const registry = new Registry();
  new Counter({ name: 'counted', help: 'c', registers: [registry] }).inc(count);
  return registry.getMetricsAsJSON();
}

t.test('sums over workers never decrease, whatever workers are slow, end or are replaced', async (t) => {
  const [one, other, third] = [{}, {}, {}];
  const workers = new WorkerMetrics<object>();
  const sum = async (...answers: (readonly [object, MetricObjects | null])[]): Promise<string> => {
    const { text } = await aggregateMetrics(await workers.all(answers));
    return /^counted (\d+)$/m.exec(text)?.[1] ?? 'none';
  };
  t.equal(await sum([one, null], [other, null]), 'none');
  t.equal(await sum([one, await figuresOf(100)], [other, await figuresOf(50)]), '150');
  t.equal(await sum([one, null], [other, await figuresOf(60)]), '160', 'one worker is slow');
  const answer = await figuresOf(110);
  workers.ended(one); // while waiting for the other worker
  t.equal(await sum([one, answer], [other, null]), '160', 'the ended worker is counted exactly once');
  t.equal(await sum([third, await figuresOf(1)], [other, await figuresOf(60)]), '161', 'one worker is replaced');
  workers.ended(other);
  t.equal(await sum([third, await figuresOf(2)]), '162');
});
