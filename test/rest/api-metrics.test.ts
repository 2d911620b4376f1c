import t from 'tap';
import { ApiMetrics } from '../../src/rest/api-metrics.js';
import { createRestApp } from '../../src/rest/rest-app.js';

const linesOf = (text: string, name: string): string[] => text.split('\n').filter((line) => line.startsWith(name));

t.test('concurrent reads of the metrics share one evaluation', async (t) => {
  const app = createRestApp({ admit: () => undefined });
  const metrics = new ApiMetrics(app, 'services');
  let asked = 0;
  const { promise, resolve } = (() => {
    let resolve: (value: number) => void = () => undefined;
    return { promise: new Promise<number>((settle) => (resolve = settle)), resolve };
  })();
  metrics.gauge('services_waits', 'A value that comes later.', () => {
    asked += 1;
    return promise;
  });
  t.teardown(() => app.close());
  await app.ready();
  const together = [app.inject('/metrics'), app.inject('/metrics'), app.inject('/metrics')];
  await new Promise((turn) => setImmediate(turn));
  resolve(7);
  for (const { statusCode, headers, body } of await Promise.all(together)) {
    t.equal(statusCode, 200);
    t.match(headers, { 'content-type': /^text\/plain; version=0\.0\.4/, 'cache-control': 'no-store' });
    t.same(linesOf(body, 'services_waits'), ['services_waits 7']);
  }
  t.equal(asked, 1);
  await app.inject('/metrics');
  t.equal(asked, 2, 'a later read evaluates again');
});

t.test('a counter that fails keeps its values, and does not hide the others', async (t) => {
  const app = createRestApp({ admit: () => undefined });
  const metrics = new ApiMetrics(app, 'registry');
  t.teardown(() => app.close());
  const values = () => [{ labels: {}, value: 5 }];
  let compute: () => ReturnType<typeof values> | Promise<never> = values;
  metrics.counter('registry_events_total', 'A value that may be away.', [], () => compute());
  const read = async () => linesOf((await app.inject('/metrics')).body, 'registry_events_total');
  t.same(await read(), ['registry_events_total 5']);
  compute = () => Promise.reject(new Error('away'));
  t.same(await read(), ['registry_events_total 5']);
  compute = () => {
    throw new Error('away');
  };
  t.same(await read(), ['registry_events_total 5'], 'also if it fails at once');
});

t.test('a gauge that fails is NaN, and does not hide the others', async (t) => {
  const app = createRestApp({ admit: () => undefined });
  const metrics = new ApiMetrics(app, 'registry');
  t.teardown(() => app.close());
  let isAway = true;
  metrics.gauge('registry_fails', 'A value that may be away.', () =>
    isAway ? Promise.reject(new Error('away')) : Promise.resolve(1),
  );
  metrics.gauge('registry_is_there', 'Another one.', () => 3);
  const read = async () =>
    linesOf((await app.inject('/metrics')).body, 'registry_').filter((line) => !line.startsWith('registry_build_info'));
  t.same(await read(), ['registry_fails Nan', 'registry_is_there 3']);
  isAway = false;
  t.same(await read(), ['registry_fails 1', 'registry_is_there 3']);
});
