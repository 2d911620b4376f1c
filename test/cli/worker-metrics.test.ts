import { Counter, Registry } from 'prom-client';
import t from 'tap';
import { WorkerMetrics } from '../../src/cli/workers/worker-processes.js';
import { aggregateMetrics } from '../../src/telemetry/aggregate-metrics.js';
import type { MetricObjects } from '../../src/telemetry/aggregate-metrics.js';

/** The metrics of a worker with the given count. */
async function metricsOf(count: number): Promise<MetricObjects> {
  const registry = new Registry();
  new Counter({ name: 'counted', help: 'c', registers: [registry] }).inc(count);
  return registry.getMetricsAsJSON();
}

t.test('sums over workers never decrease, whatever workers are slow, end or are replaced', async (t) => {
  const [one, other, third] = [{}, {}, {}];
  const workers = new WorkerMetrics<object>();
  const sum = async (...replies: (readonly [object, MetricObjects | null])[]): Promise<string> => {
    const { text } = await aggregateMetrics(await workers.all(replies));
    return /^counted (\d+)$/m.exec(text)?.[1] ?? 'none';
  };
  t.equal(await sum([one, null], [other, null]), 'none');
  t.equal(await sum([one, await metricsOf(100)], [other, await metricsOf(50)]), '150');
  t.equal(await sum([one, null], [other, await metricsOf(60)]), '160', 'one worker is slow');
  const reply = await metricsOf(110);
  workers.ended(one); // after its reply, while the primary process still waits for the other worker
  t.equal(await sum([one, reply], [other, null]), '160', 'the ended worker is counted exactly once');
  t.equal(await sum([third, await metricsOf(1)], [other, await metricsOf(60)]), '161', 'one worker is replaced');
  workers.ended(other);
  t.equal(await sum([third, await metricsOf(2)]), '162');
});
