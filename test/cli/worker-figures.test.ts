import { Counter, Registry } from 'prom-client';
import t from 'tap';
import { WorkerFigures } from '../../src/cli/workers/worker-processes.js';
import { aggregateFigures } from '../../src/telemetry/aggregate-figures.js';
import type { Figures } from '../../src/telemetry/aggregate-figures.js';

/** What a worker tells that has counted so much. */
async function figuresOf(count: number): Promise<Figures> {
  const registry = new Registry();
  new Counter({ name: 'counted', help: 'c', registers: [registry] }).inc(count);
  return registry.getMetricsAsJSON();
}

t.test('no sum of workers falls, whoever is slow or ends, and in whatever order', async (t) => {
  const [one, other, third] = [{}, {}, {}];
  const workers = new WorkerFigures<object>();
  const sum = async (...answers: (readonly [object, Figures | null])[]): Promise<string> => {
    const { text } = await aggregateFigures(await workers.all(answers));
    return /^counted (\d+)$/m.exec(text)?.[1] ?? 'none';
  };
  t.equal(await sum([one, null], [other, null]), 'none');
  t.equal(await sum([one, await figuresOf(100)], [other, await figuresOf(50)]), '150');
  t.equal(await sum([one, null], [other, await figuresOf(60)]), '160', 'slow');
  const answer = await figuresOf(110);
  workers.ended(one); // while the other one was waited for
  t.equal(await sum([one, answer], [other, null]), '160', 'neither left out nor counted twice');
  t.equal(await sum([third, await figuresOf(1)], [other, await figuresOf(60)]), '161', 'replaced');
  workers.ended(other);
  t.equal(await sum([third, await figuresOf(2)]), '162');
});
