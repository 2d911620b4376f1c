import t from 'tap';
import { evictionLog } from '../../src/cli/compose/redis-address.js';
import { withoutRedis } from '../adapters/redis-server.js';
import { registryOnRedis, until } from './registry-on-redis.js';

async function readiness(url: string): Promise<{ projection: string; warnings: string[] }> {
  const response = await fetch(`${url}/readyz`);
  t.equal(response.status, 200, 'the admin API is available');
  return ((await response.json()) as { data: { projection: string; warnings: string[] } }).data;
}

// An evicted record is indistinguishable from an unknown key. Regression: with allkeys-lru, 41 of 120 valid keys got
// 401 permanently.
t.test(
  'a starting registry writes nothing to a Redis whose policy may evict records',
  { skip: withoutRedis },
  async (t) => {
    const { redis, logged, start } = await registryOnRedis(t, ['maxmemory 50mb', 'maxmemory-policy allkeys-lru']);
    const registry = await start();
    t.equal(await redis.client.dbsize(), 0);
    t.match(await readiness(registry.url), {
      projection: 'behind',
      warnings: [/^Redis may evict records \(maxmemory-policy allkeys-lru\): set maxmemory-policy noeviction/],
    });
    t.match(logged.join('\n'), /could not be written to the store.*may evict records \(maxmemory-policy allkeys-lru\)/);
    await redis.client.config('SET', 'maxmemory-policy', 'noeviction');
    await until(
      async () => (await redis.client.get('mg:meta'))?.includes('"version":1') === true,
      'the projection resumes automatically',
    );
    await until(
      async () => (await readiness(registry.url)).projection === 'current',
      'the projection is reported as current',
    );
    t.same((await readiness(registry.url)).warnings, []);

    await redis.client.config('SET', 'maxmemory-policy', 'allkeys-lru');
    await until(
      async () => (await readiness(registry.url)).warnings.length > 0,
      'the running registry detects the policy',
    );
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
    await until(
      async () => (await redis.client.get('mg:revision')) === String(before + 1),
      'changes are still projected',
    );
  },
);

t.test('a volatile eviction policy causes a warning', { skip: withoutRedis }, async (t) => {
  const { redis, start, gateway } = await registryOnRedis(t, ['maxmemory 50mb', 'maxmemory-policy volatile-lru']);
  const registry = await start();
  await until(async () => (await redis.client.exists('mg:meta')) === 1, 'the records are written despite the policy');
  await until(async () => (await readiness(registry.url)).projection === 'current', 'the projection is current');
  t.match(await readiness(registry.url), { projection: 'current', warnings: [/maxmemory-policy volatile-lru/] });
  const { reported } = gateway('g');
  await until(() => reported.flat().length > 0, 'the gateway reports the policy');
  t.same(
    reported.findLast((policies) => policies.length > 0),
    ['volatile-lru'],
  );
});

t.test('the registry exposes the number of evicted keys as a metric', { skip: withoutRedis }, async (t) => {
  const { redis, start } = await registryOnRedis(t);
  const registry = await start();
  const metric = async (name: string): Promise<number> =>
    Number(
      new RegExp(`^registry_redis_${name} (\\S+)$`, 'm').exec(
        await (await fetch(`${registry.url}/metrics`)).text(),
      )?.[1],
    );
  t.same([await metric('evicted_keys'), await metric('may_evict')], [0, 0]);
  await redis.client.config('SET', 'maxmemory-policy', 'volatile-lru');
  await redis.client.set('other', 'x', 'EX', 1000);
  await redis.client.config('SET', 'maxmemory', '1mb');
  await redis.client.set('another', 'x'.repeat(1_000_000)).catch(() => undefined);
  await until(async () => (await metric('evicted_keys')) > 0, 'the eviction is counted');
  t.equal(await metric('may_evict'), 1);
});

t.test('a gateway logs an evicting policy once, and again if it returns after a correction', (t) => {
  const warnings: object[] = [];
  const log = evictionLog({ warn: (details: object) => warnings.push(details) } as never);
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
  t.same(warnings, [{ maxmemoryPolicy: 'allkeys-lru' }, { maxmemoryPolicy: 'volatile-ttl' }]);
  t.end();
});
