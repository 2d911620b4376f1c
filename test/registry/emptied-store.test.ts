import t from 'tap';
import { withoutRedis } from '../adapters/redis-server.js';
import { registryOnRedis, until } from './registry-on-redis.js';

// Regression: after FLUSHALL every uncached key got 503 until the last record was written, which took seconds with ten
// thousand keys.
t.test('after FLUSHALL the records that gateways request are restored first', { skip: withoutRedis }, async (t) => {
  const { redis, start, insertKeys, gateway } = await registryOnRedis(t);
  const registry = await start();
  const ids = await insertKeys(registry, 10_000);
  await redis.client.del('mg:meta');
  const one = gateway('one');
  const meta = async (): Promise<string> => (await redis.client.get('mg:meta')) ?? '';
  const isComplete = async (): Promise<boolean> => (await meta()).includes('"version":1');
  await until(async () => (await redis.client.dbsize()) > 10_000 && (await isComplete()), 'all records are written');
  await one.enrolled();
  await redis.client.flushall();
  const seen = new Set<string>();
  let whileFilling = 0;
  const accepted = async (id: string): Promise<void> => {
    for (;;) {
      const result = await one.ask(id);
      seen.add(result.slice(0, 3));
      if (result === 'accepted') break;
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    if ((await meta()).includes('"filling":true')) whileFilling += 1;
  };
  await Promise.all(ids.slice(0, 1_000).map(accepted));
  t.ok(whileFilling > 0, `${whileFilling} of 1,000 keys were accepted before the store was full`);
  t.notOk(seen.has('401'), 'an empty store never causes a 401 for a valid key');
  await until(isComplete, 'the store is complete');
  await until(async () => (await one.ask(ids[9_999] ?? '')) === 'accepted', 'the last record is in Redis');
});

t.test(
  'a restarted registry writes the records that its predecessor left unwritten',
  { skip: withoutRedis },
  async (t) => {
    const { redis, start, insertKeys, gateway } = await registryOnRedis(t);
    const registry = await start();
    const ids = await insertKeys(registry, 10_000);
    const meta = async (): Promise<string> => (await redis.client.get('mg:meta')) ?? '';
    await redis.client.del('mg:meta');
    await until(async () => (await meta()).includes('"version":1'), 'all records are written');
    const one = gateway('one');
    await one.enrolled();
    await redis.client.flushall();
    await until(async () => (await meta()).includes('"filling":true'), 'the refill has started');
    await registry.stop();
    const left = ids.slice(-200);
    if ((await meta()).includes('"filling":true')) {
      const results = new Set((await Promise.all(left.map((id) => one.ask(id)))).map((result) => result.slice(0, 3)));
      t.notOk(results.has('401'), [...results].join());
    }
    await start();
    for (const id of left) await until(async () => (await one.ask(id)) === 'accepted', 'the key is accepted');
    await until(async () => (await meta()).includes('"version":1'), 'the store is complete');
  },
);
