import { once } from 'node:events';
import { copyFileSync, readdirSync, rmSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { until } from './rig.js';
import { metricValue, openScenes, options } from './scenes.js';

t.test('alerts on records fire for their causes, and never in a quiet hour', options, async (t) => {
  const scenes = await openScenes(t, 'records');
  const { admin, ask, caused, createKey, folder, gateways, key, redis, registry, start } = scenes;
  const [gateway] = gateways;
  const { client } = redis;
  const isProjected = async (part: typeof registry): Promise<boolean> =>
    (await metricValue(part, 'registry_projected_revision')) === (await metricValue(part, 'registry_revision'));

  const keys = await client.keys('mg:key:*');
  const [record = ''] = keys;
  await caused(
    ['RegistryRecordsForged', 'GatewayRecordsForged'],
    { registry, 'gateway 1': gateway },
    async () => {
      // Stops the registry, which would repair the forged record before a gateway sees it.
      registry.child.kill('SIGSTOP');
      await client.set(record, '{"keyId":"key_1","merchantId":"m_1","status":"ACTIVE"}');
      const refused = 'gateway_records_refused_total{reason="unsealed"}';
      await until('a gateway rejects the record', async () => (await metricValue(gateway, refused)) > 0);
      const available = await metricValue(gateway, 'gateway_key_store_available');
      t.equal(available, 1, 'a record that cannot be used is no reason for GatewayKeyStoreUnavailable');
      registry.child.kill('SIGCONT');
    },
    async () => (await metricValue(registry, 'registry_records_repaired_total{cause="forged"}')) > 0,
  );
  await until('the record is repaired', async () => (await ask(gateway, { key })) === 200);

  for (let count = 0; count < 3; count += 1) await createKey();
  const before = await metricValue(registry, 'registry_records_repaired_total{cause="missing"}');
  await caused(
    ['RegistryRecordsMissing'],
    { registry },
    async () => {
      for (const name of await client.keys('mg:key:*')) await client.del(name);
    },
    async () => (await metricValue(registry, 'registry_records_repaired_total{cause="missing"}')) >= (before || 0) + 3,
  );

  const narrow = await start('gateway', { keyStore: { cache: { maxEntries: 1 } } });
  await caused(
    ['GatewayHoldsNotAllRecords'],
    { 'gateway 1': narrow },
    () => undefined,
    async () => (await metricValue(narrow, 'gateway_record_preload_state{state="full"}')) === 1,
  );
  await narrow.kill();

  await client.config('SET', 'maxmemory-policy', 'volatile-ttl');
  await caused(
    ['RegistryRedisMayEvict'],
    { registry },
    () => undefined,
    async () => (await metricValue(registry, 'registry_redis_may_evict')) === 1,
  );
  const used = async (): Promise<number> => Number(/used_memory:(\d+)/.exec(await client.info('memory'))?.[1]);
  await caused(
    ['RegistryRedisEvicts'],
    { registry },
    async () => {
      await client.config('SET', 'maxmemory', String((await used()) + 200_000));
      for (let count = 0; count < 60; count += 1) await client.set(`filler:${count}`, 'x'.repeat(10_000), 'EX', 100);
    },
    async () => (await metricValue(registry, 'registry_redis_evicted_keys')) > 0,
  );
  await client.config('SET', 'maxmemory', '0');
  await client.del(...Array.from({ length: 60 }, (_, count) => `filler:${count}`));

  const isPaused = async (): Promise<boolean> => (await metricValue(registry, 'registry_repair_paused')) === 1;
  const isPausedWhileFull = async (): Promise<boolean> => {
    await client.config('SET', 'maxmemory', String((await used()) - 100_000));
    for (let check = 0; check < 50; check += 1) {
      await wait(100);
      if (!(await isPaused())) continue;
      // A registry that has just noticed the new maxmemory makes a trial write at once, and may find room.
      await wait(2000);
      if (await isPaused()) return true;
    }
    await client.config('SET', 'maxmemory', '0');
    await wait(3000);
    return false;
  };
  // The records need about a megabyte, much more memory than the connections of Redis. So Redis can free enough memory
  // without evicting the records that are read every second.
  const ipAllowlist = Array.from({ length: 100 }, (_, number) => `9.9.9.${number}`);
  const large = {
    ...{ type: 'merchant', name: 'x'.repeat(100), status: 'ACTIVE', goLive: false },
    ...{ ipAllowlist, originAllowlist: null },
  };
  for (const batch of [1, 2]) {
    const entries = Array.from({ length: 300 }, (_, number) => ({
      ...large,
      merchantId: `m_large_${batch}_${number}`,
    }));
    const { status } = await admin(registry, 'POST', '/imports', { entries });
    t.ok(status === 200 || status === 202, `an import gets ${status}`);
  }
  await until('the merchants are in Redis', () => isProjected(registry), 60);
  await caused(
    ['RegistryRepairPaused'],
    { registry },
    async () => {
      // With few samples, Redis may evict a record that is read every second. The registry would then rewrite all
      // records and not pause.
      await client.config('SET', 'maxmemory-samples', '64');
      await client.config('SET', 'maxmemory-policy', 'allkeys-lru');
      await until('repair is paused', () => isPausedWhileFull(), 120);
    },
    isPaused,
  );
  await client.config('SET', 'maxmemory', '0');
  await client.config('SET', 'maxmemory-policy', 'noeviction');

  // Restores the database to a time before a revocation. Redis still has the record of the revoked key.
  const { keyId } = await createKey();
  const stop = async (part: typeof registry): Promise<void> => {
    const ended = once(part.child, 'exit');
    part.child.kill('SIGTERM');
    await ended;
  };
  await stop(registry);
  const files = readdirSync(folder).filter((name) => /^registry\.db(?!\.lock)/.test(name));
  for (const name of files) copyFileSync(path.join(folder, name), path.join(folder, `backup-${name}`));
  const second = await start('registry');
  await until('the revocation is in Redis', async () => {
    await admin(second, 'POST', `/keys/${keyId}/revoke`);
    return isProjected(second);
  });
  await stop(second);
  for (const name of readdirSync(folder)) if (/^registry\.db(?!\.lock)/.test(name)) rmSync(path.join(folder, name));
  for (const name of files) copyFileSync(path.join(folder, `backup-${name}`), path.join(folder, name));
  const restored = await start('registry');
  await caused(
    ['RegistryHoldsRecordsBack'],
    { registry: restored },
    () => undefined,
    async () => (await metricValue(restored, 'registry_held_back_records')) > 0,
  );
  scenes.evaluate();
});
