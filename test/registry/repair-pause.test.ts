import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { registryAuthor } from '../../src/registry/events/author.js';
import type { Test } from 'tap';
import { withoutRedis } from '../adapters/redis-server.js';
import { createKey, revokeKey } from '../../src/registry/keys/key-changes.js';
import { createMerchant } from '../../src/registry/merchants/repository.js';
import { MemoryWatch } from './memory-watch.js';
import { projectionFixture } from './projection-fixture.js';
import { registryOnRedis, until } from './registry-on-redis.js';
import { differences } from './stored-state.js';

const warning = 'Redis is full and evicts records that the registry writes back: repair of missing records is paused; ';

/**
 * A projection that has written 1,500 merchants, on a store that reports writes by others. The function `evict` deletes
 * records until `room.records` remain.
 */
async function fullStore(t: Test) {
  const fixture = await projectionFixture(t, 'sqlite::memory:');
  const { context, insertMerchants, projection, store, time } = fixture;
  const watch = new MemoryWatch(store);
  store.watched = watch;
  const logged: string[] = [];
  const log = (_details: object, message: string): void => void logged.push(message);
  const one = projection('one', undefined, { error: log, warn: log, info: log });
  await insertMerchants(1_500);
  await one.run();
  const merchant = await createMerchant(context, registryAuthor, { name: 'x', status: 'ACTIVE', goLive: true });
  const { keyId } = await createKey(context, registryAuthor, merchant.id, { environment: 'live' });
  await one.run();
  const room = { records: Infinity };
  const written = { missing: 0 };
  const evict = (): void => {
    for (const name of store.records.keys()) {
      if (store.records.size <= room.records) return;
      store.records.delete(name);
      watch.notice(name);
      store.held = { ...store.held, evictedKeys: store.held.evictedKeys + 1 };
    }
  };
  const repair = watch.repair.bind(watch);
  watch.repair = async (found) => {
    written.missing += found.filter(({ isStored }) => !isStored).length;
    if (written.missing > 20_000) throw new Error('this has no end');
    await repair(found);
    evict();
  };
  return {
    ...{ ...fixture, evict, keyId, logged, merchant, one, room, watch, written },
    set: (policy: string, maxMemory: number): void => {
      store.held = { ...store.held, policies: [policy], maxMemory };
    },
    /** Runs one pass per second. */
    passes: async (count: number): Promise<void> => {
      for (let pass = 0; pass < count; pass += 1) {
        time.advance(1_000);
        await one.run();
        await new Promise(setImmediate);
      }
    },
  };
}

t.test('only the repair of missing records pauses while each repair evicts other records', async (t) => {
  const fixture = await fullStore(t);
  const { context, database, evict, keyId, logged, merchant, one, passes, room, set, store, watch, written } = fixture;
  set('allkeys-lru', 1_000);
  room.records = 1_000;
  evict();
  await passes(1);
  t.ok(one.repairCounts.isPaused);
  t.equal(written.missing, 1_000, 'two batches were repaired');
  t.equal(logged.filter((line) => line.startsWith(warning)).length, 1);

  await revokeKey(context, registryAuthor, keyId);
  const name = `merchant:${merchant.id}`;
  store.records.set(name, { ...store.records.get(name), status: 'FORGED' });
  store.records.set('key:strange', { status: 'ACTIVE' });
  watch.notice(name, 'key:strange');
  await passes(2);
  t.equal(written.missing, 1_000);
  t.match(Object.fromEntries(one.repairCounts.repaired), { forged: 1, unknown: 1 });
  const revoked = (await differences(database, store)).filter((one) => !one.includes('m_'));
  t.same(revoked, [], 'the change is written and the forged record is repaired');

  await passes(300);
  t.ok(written.missing <= 1_100, `single small batches at growing intervals: ${written.missing - 1_000} records`);
  t.ok(written.missing >= 1_040, 'then one batch per minute');
  t.ok(one.repairCounts.isPaused);

  room.records = Infinity;
  set('allkeys-lru', 2_000);
  await passes(3);
  t.notOk(one.repairCounts.isPaused, 'the pause ends once Redis has more memory');
  t.same(
    await differences(database, store),
    [],
    'every record is restored, including those found missing during the pause',
  );
  t.equal(logged.filter((line) => line === 'repair of missing records resumed').length, 1);
});

t.test('a missing record that a gateway requests is rewritten even during a pause', async (t) => {
  const { evict, one, passes, room, set, store } = await fullStore(t);
  set('allkeys-lru', 1_000);
  room.records = 1_000;
  evict();
  await passes(1);
  const merchants = Array.from({ length: 1_500 }, (_, index) => `merchant:m_${index}`);
  const record = merchants.find((name) => !store.records.has(name)) ?? '';
  const [waiting, written] = [[{ name: 'ask:1', record }], [] as string[]];
  store.inbox = {
    onWork: () => undefined,
    take: () => waiting.splice(0),
    reply: (_asks, present) => {
      written.push(...present);
      return Promise.resolve();
    },
  };
  await one.run();
  t.same(written, [record]);
  t.ok(store.records.has(record), 'so the key is not rejected as unknown');
  t.ok(one.repairCounts.isPaused);
});

t.test('past evictions, and evictions of keys with a TTL, do not pause the repair', async (t) => {
  const { database, evict, one, passes, room, set, store, watch } = await fullStore(t);
  set('allkeys-lru', 1_000);
  room.records = 300;
  evict();
  room.records = Infinity;
  await passes(1);
  t.notOk(one.repairCounts.isPaused, 'another client needed the memory for a short time');
  t.same(await differences(database, store), []);

  set('volatile-lru', 1_000);
  const repair = watch.repair.bind(watch);
  watch.repair = async (found) => {
    store.held = { ...store.held, evictedKeys: store.held.evictedKeys + 1 };
    await repair(found);
  };
  const names = [...store.records.keys()];
  for (const name of names) store.records.delete(name);
  watch.notice(...names);
  await passes(1);
  t.notOk(one.repairCounts.isPaused, 'a key with a TTL is evicted in preference to a record');
  t.same(await differences(database, store), []);
});

t.test('evictions between consecutive repairs pause the repair too', async (t) => {
  const { logged, one, passes, set, store, watch } = await fullStore(t);
  set('allkeys-lru', 1_000);
  const count = (): void => {
    store.held = { ...store.held, evictedKeys: store.held.evictedKeys + 1 };
  };
  const lose = async (): Promise<void> => {
    const [name = ''] = store.records.keys();
    store.records.delete(name);
    watch.notice(name);
    await passes(1);
  };
  watch.onCompared = count;
  for (let time = 0; time < 3; time += 1) {
    await lose();
    await passes(20);
  }
  t.notOk(
    logged.some((line) => line.startsWith(warning)),
    'infrequent repairs do not cause a pause',
  );
  watch.onCompared = () => undefined;
  for (let time = 0; time < 3; time += 1) {
    // Evictions that no repair causes: for example, large reads by another client need memory.
    count();
    await lose();
  }
  t.ok(one.repairCounts.isPaused);
});

t.test('a trial write that Redis rejects delays no change, and the pause ends with the lease', async (t) => {
  const { context, database, evict, keyId, one, passes, room, set, store, watch } = await fullStore(t);
  set('allkeys-lru', 1_000);
  room.records = 1_000;
  evict();
  await passes(1);
  set('noeviction', 1_000);
  watch.repair = () => Promise.reject(new Error("OOM command not allowed when used memory > 'maxmemory'"));
  await revokeKey(context, registryAuthor, keyId);
  await t.rejects(one.run(), /OOM/);
  await one.run();
  t.same(
    (await differences(database, store)).filter((name) => name.startsWith('key:')),
    [],
  );
  t.ok(one.repairCounts.isPaused);

  await one.end();
  t.notOk(one.repairCounts.isPaused);
});

// Regression: repair had no limit. In a Redis with 4,000 keys and memory for 2,900, the registry wrote 3,000 evicted
// records back each second, and nothing reported this.
t.test(
  'repair of a full, evicting Redis is bounded, and completes once Redis has room',
  {
    skip: withoutRedis,
  },
  async (t) => {
    const { insertKeys, logged, redis, start } = await registryOnRedis(t);
    const { client } = redis;
    const registry = await start();
    const text = async (path: string): Promise<string> => (await fetch(`${registry.url}/${path}`)).text();
    const metric = async (name: string): Promise<number> =>
      Number(new RegExp(`^registry_${name} (\\S+)$`, 'm').exec(await text('metrics'))?.[1]);
    const warnings = async (): Promise<string[]> =>
      (JSON.parse(await text('readyz')) as { data: { warnings: string[] } }).data.warnings;
    const known = async (): Promise<number> => (await client.keys('mg:key:*')).length;
    const [first = '', second = ''] = await insertKeys(registry, 4_000);
    await client.del('mg:meta');
    await until(async () => (await client.get('mg:meta'))?.includes('"version":1') === true, 'all records are written');
    t.equal(await known(), 4_000);
    t.equal(await metric('repair_paused'), 0);
    // The registry reads some records every second. Redis evicts them last if the other records are idle.
    await until(async () => Number(await client.object('IDLETIME', `mg:key:${first}`)) >= 3, 'the records are idle');

    const [, used = ''] = /^used_memory:(\d+)/m.exec(await client.info('memory')) ?? [];
    await client.config('SET', 'maxmemory-policy', 'allkeys-lru');
    await client.config('SET', 'maxmemory', String(Number(used) - 300_000));
    await until(async () => (await warnings()).some((one) => one.startsWith(warning)), '/readyz reports the pause');
    t.equal(await metric('repair_paused'), 1);
    await wait(3_000);
    const repairs = await metric('records_repaired_total\\{cause="missing"\\}');
    t.comment(`${await known()} keys, ${repairs} repairs, ${await metric('redis_evicted_keys')} evicted`);
    t.ok(repairs <= 2_500, 'two batches, and one more after a successful trial write');
    t.ok((await known()) < 4_000);

    const response = await fetch(`${registry.url}/keys/${await keyIdOf(second)}/revoke`, {
      method: 'POST',
      headers: { authorization: 'Bearer an-administrators-token-of-enough-characters' },
    });
    t.ok(response.ok);
    const isRevoked = async () => (await client.get(`mg:key:${second}`))?.includes('"REVOKED"') === true;
    await until(isRevoked, 'a revocation is written during the pause');

    await client.config('SET', 'maxmemory', '100mb');
    await until(async () => (await known()) === 4_000, 'every record is restored');
    t.ok(await isRevoked());
    await client.config('SET', 'maxmemory-policy', 'noeviction');
    await until(async () => (await warnings()).length === 0, '/readyz has no warning');
    t.equal(await metric('repair_paused'), 0);
    const begun = logged.find((line) => line.startsWith(warning));
    t.match(begun, `"maxMemory":${Number(used) - 300_000}`);
    t.ok(logged.some((line) => line.startsWith('repair of missing records resumed')));

    async function keyIdOf(lookupId: string): Promise<string> {
      const row = registry.database.selectFrom('api_keys').select('key_id').where('lookup_id', '=', lookupId);
      return (await row.executeTakeFirstOrThrow()).key_id;
    }
  },
);
