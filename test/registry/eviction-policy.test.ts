import t from 'tap';
import { evictionLog } from '../../src/cli/compose/redis-address.js';
import { withoutRedis } from '../adapters/redis-server.js';
import { registryOnRedis, until } from './registry-on-redis.js';

async function readiness(url: string): Promise<{ projection: string; warnings: string[] }> {
  const response = await fetch(`${url}/readyz`);
  t.equal(response.status, 200, 'administrators reach it all the same');
  return ((await response.json()) as { data: { projection: string; warnings: string[] } }).data;
}

// An evicted record cannot be told from one that never was: with allkeys-lru, 41 of 120 good keys were 401 without end.
t.test('a registry that starts writes nothing to a Redis that may evict records', { skip: withoutRedis }, async (t) => {
  const { redis, logged, start } = await registryOnRedis(t, ['maxmemory 50mb', 'maxmemory-policy allkeys-lru']);
  const registry = await start();
  t.equal(await redis.client.dbsize(), 0);
  t.match(await readiness(registry.url), {
    projection: 'behind',
    warnings: [/^Redis may evict records \(maxmemory-policy allkeys-lru\): set maxmemory-policy noeviction/],
  });
  t.match(logged.join('\n'), /could not be projected.*may evict records \(maxmemory-policy allkeys-lru\)/);
  await redis.client.config('SET', 'maxmemory-policy', 'noeviction');
  await until(
    async () => (await redis.client.get('mg:meta'))?.includes('"version":1') === true,
    'it goes on by itself',
  );
  await until(async () => (await readiness(registry.url)).projection === 'current', 'it says so');
  t.same((await readiness(registry.url)).warnings, []);

  await redis.client.config('SET', 'maxmemory-policy', 'allkeys-lru');
  await until(async () => (await readiness(registry.url)).warnings.length > 0, 'it is noticed while it runs');
  const { revision: before } = await registry.database
    .selectFrom('revision')
    .select('value as revision')
    .executeTakeFirstOrThrow();
  await registry.database
    .updateTable('revision')
    .set({ value: before + 1 })
    .execute();
  await registry.database
    .insertInto('outbox')
    .values({ revision: before + 1, name: 'key:none', change: 'c' })
    .execute();
  await until(async () => (await redis.client.get('mg:revision')) === String(before + 1), 'changes go on');
});

t.test('a policy that evicts what has a lifetime is a warning', { skip: withoutRedis }, async (t) => {
  const { redis, start, gateway } = await registryOnRedis(t, ['maxmemory 50mb', 'maxmemory-policy volatile-lru']);
  const registry = await start();
  t.equal(await redis.client.exists('mg:meta'), 1);
  t.match(await readiness(registry.url), { projection: 'current', warnings: [/maxmemory-policy volatile-lru/] });
  const { told } = gateway('g');
  await until(() => told.flat().length > 0, 'a gateway is told as well');
  t.same(
    told.findLast((policies) => policies.length > 0),
    ['volatile-lru'],
  );
});

t.test('what Redis has evicted is a figure of the registry', { skip: withoutRedis }, async (t) => {
  const { redis, start } = await registryOnRedis(t);
  const registry = await start();
  const figure = async (name: string): Promise<number> =>
    Number(
      new RegExp(`^registry_redis_${name} (\\S+)$`, 'm').exec(
        await (await fetch(`${registry.url}/metrics`)).text(),
      )?.[1],
    );
  t.same([await figure('evicted_keys'), await figure('may_evict')], [0, 0]);
  await redis.client.config('SET', 'maxmemory-policy', 'volatile-lru');
  await redis.client.set('other', 'x', 'EX', 1000);
  await redis.client.config('SET', 'maxmemory', '1mb');
  await redis.client.set('another', 'x'.repeat(1_000_000)).catch(() => undefined);
  await until(async () => (await figure('evicted_keys')) > 0, 'it is counted');
  t.equal(await figure('may_evict'), 1);
});

t.test('a gateway logs a policy that evicts once, and again after it was set right', (t) => {
  const told: object[] = [];
  const log = evictionLog({ warn: (details: object) => told.push(details) } as never);
  for (const policies of [
    ['noeviction'],
    [],
    ['allkeys-lru'],
    [],
    ['allkeys-lru'],
    ['noeviction'],
    ['noeviction', 'volatile-ttl'],
  ])
    log(policies);
  t.same(told, [{ maxmemoryPolicy: 'allkeys-lru' }, { maxmemoryPolicy: 'volatile-ttl' }]);
  t.end();
});
