import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { lookupIdOf } from '../../src/gateway/api-key.js';
import { withoutRedis } from '../adapters/redis-server.js';
import { registryOnRedis, until } from '../registry/registry-on-redis.js';

const unknown = (count: number): string => lookupIdOf(`svc_live_unknown_${count}`, null);

// After an eviction, or a DEL by hand, a good key was "Invalid API Key" without end.
t.test('a key whose record was deleted is accepted at once, held or not', { skip: withoutRedis }, async (t) => {
  const { redis, start, insertKeys, gateway } = await registryOnRedis(t);
  const registry = await start();
  const ids = await insertKeys(registry, 120);
  await redis.client.del('mg:meta');
  const one = gateway('one');
  await until(async () => (await one.ask(ids[119] ?? '')) === 'accepted', 'all are written');
  await one.enrolled();
  await until(async () => (await one.ask(ids[119] ?? '')) === 'accepted', 'it holds what it reads');
  for (const id of ids.slice(0, 20)) t.equal(await one.ask(id), 'accepted');
  const names = ids.slice(0, 40).map((id) => `mg:key:${id}`);
  t.equal(await redis.client.del(...names, 'mg:merchant:m_0'), 41);
  const answers = await Promise.all(ids.slice(0, 40).map((id) => one.ask(id)));
  t.same([...new Set(answers)], ['accepted']);
  t.equal(await redis.client.exists(...names, 'mg:merchant:m_0'), 41, 'they are written again');
  t.equal(await one.ask(unknown(1)), '401', 'one that never was is unknown');
});

t.test('a gateway that starts after a deletion finds out', { skip: withoutRedis }, async (t) => {
  const { redis, start, insertKeys, gateway } = await registryOnRedis(t);
  let registry = await start();
  const [id = '', other = ''] = await insertKeys(registry, 2);
  await redis.client.del('mg:meta');
  await until(async () => (await redis.client.exists(`mg:key:${id}`)) === 1, 'written');
  await until(async () => (await redis.client.get('mg:meta'))?.includes('"version":1') === true, 'complete');
  await registry.stop();
  await redis.client.del(`mg:key:${id}`);
  const one = gateway('one');
  await until(async () => (await one.ask(other)) === 'accepted', 'it is there');
  t.match(await one.ask(id), /^503 records may be missing/, 'while the registry is away');
  t.match(await one.ask(unknown(1)), /^503/, 'an unknown key as well');
  registry = await start();
  await until(async () => (await one.ask(id)) === 'accepted', 'the registry is back');
  await until(async () => (await one.ask(unknown(1))) === '401', 'nothing is missing');
});

t.test(
  'with the registry away, what was compared before stays unknown, and what was deleted since is 503',
  { skip: withoutRedis },
  async (t) => {
    const { redis, start, insertKeys, gateway } = await registryOnRedis(t);
    const registry = await start();
    const ids = await insertKeys(registry, 10);
    await redis.client.del('mg:meta');
    const one = gateway('one');
    await until(async () => (await one.ask(ids[9] ?? '')) === 'accepted', 'all are written');
    await one.enrolled();
    await until(async () => ((await redis.client.get('mg:grant:one')) ?? '').includes('"compared":true'), 'compared');
    await wait(1_000);
    await registry.stop();
    t.equal(await one.ask(unknown(1)), '401');
    await redis.client.del(`mg:key:${ids[0]}`, `mg:key:${ids[9]}`);
    t.match(await one.ask(ids[0] ?? ''), /^503 records may be missing/, 'not held');
    t.match(await one.ask(ids[9] ?? ''), /^503 records may be missing/, 'held before');
    t.equal(await one.ask(unknown(2)), '401');
  },
);

t.test('evicted keys are never invalid', { skip: withoutRedis }, async (t) => {
  const { redis, start, insertKeys, gateway } = await registryOnRedis(t);
  const registry = await start();
  const ids = await insertKeys(registry, 2_000);
  await redis.client.del('mg:meta');
  const one = gateway('one');
  await until(async () => (await one.ask(ids[1_999] ?? '')) === 'accepted', 'all are written');
  await one.enrolled();
  await redis.client.config('SET', 'maxmemory-policy', 'allkeys-random');
  const evict = async (): Promise<void> => {
    const used = Number(/^used_memory:(\d+)/m.exec(await redis.client.info('memory'))?.[1]);
    await redis.client.config('SET', 'maxmemory', String(used - 150_000));
    await redis.client.set('other', 'x');
    await redis.client.config('SET', 'maxmemory', '0');
  };
  await evict();
  const evicted = Number(/^evicted_keys:(\d+)/m.exec(await redis.client.info('stats'))?.[1]);
  t.ok(evicted > 20, `${evicted} were evicted`);
  const wrong: string[] = [];
  for (const end = Date.now() + 3_000; Date.now() < end;) {
    const answers = await Promise.all(ids.slice(0, 500).map((id) => one.ask(id)));
    wrong.push(...answers.filter((answer) => answer === '401'));
  }
  t.same(wrong, []);
  await until(
    async () => (await redis.client.exists(...ids.map((id) => `mg:key:${id}`))) === 2_000,
    'all are there again',
  );
  t.same([...new Set(await Promise.all(ids.map((id) => one.ask(id))))], ['accepted']);
});
