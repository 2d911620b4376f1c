import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { runIdOf, withoutRedis } from '../adapters/redis-server.js';
import { openSite } from '../deployment/deployment.js';
import { liveKey, recordsOf } from '../edge/harness.js';

// A gateway reads Redis on each request until the registry has granted it the use of a cache. If the gateway became
// ready before this grant, each request right after the start would need a read of Redis.
t.test('a gateway becomes ready once it has its grant, or after a timeout', { skip: withoutRedis }, async (t) => {
  const { redis, startGateway } = await openSite(t, {
    management: true,
    throttles: true,
    // A machine that runs other tests can delay a reply of Redis by more than the default of 200 ms.
    settings: { keyStore: { redis: { commandTimeoutMilliseconds: 5_000 } } },
  });
  const records = { ...recordsOf(liveKey) } as Record<string, object>;
  records['mg:meta'] = { ...records['mg:meta'], servers: [await runIdOf(redis)], replicas: 0 };
  for (const [name, value] of Object.entries(records)) await redis.client.set(name, JSON.stringify(value));
  await redis.client.set('mg:revision', '1');
  const gateway = await startGateway({}, { isAwaited: false });
  const ask = () => gateway.ask(liveKey);

  const readiness: { status: number; text: string; asked: number }[] = [];
  for (let status = 0; status !== 200;) {
    await wait(20);
    const page = await gateway.page('readyz');
    const text = page.body;
    ({ status } = page);
    readiness.push({ status, text, asked: text.includes('waiting for the registry') ? await ask() : 200 });
    if (readiness.length > 1_500) throw new Error(`never ready: ${text}`);
  }
  const waiting = readiness.filter(({ text }) =>
    text.includes('key store: waiting for the registry to enrol this gateway'),
  );
  t.ok(waiting.length > 0, `waiting at ${waiting.length} of ${readiness.length} readiness checks`);
  t.same([...new Set(waiting.map(({ status }) => status))], [503]);
  t.same([...new Set(waiting.map(({ asked }) => asked))], [200], 'requests in the meantime get 200');
  while (!gateway.log().includes('the registry has not enrolled this gateway')) await wait(20);
  t.equal(await ask(), 200);
});
