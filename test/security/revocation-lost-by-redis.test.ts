import path from 'node:path';
import t from 'tap';
import { withoutRedis } from '../adapters/redis-server.js';
import { Scene, statusesOf } from '../truth/scene.js';

const options = { gateways: 2, registries: 1, maxStaleSeconds: 20, dist: path.resolve('dist') } as const;

// The database was restored from a backup and Redis was emptied. Regression: a key that was revoked after the backup
// worked again, although a gateway still had its revoked record in the cache.
for (const topology of ['single', 'cluster'] as const) {
  t.test(
    `a revocation that only a gateway knows survives a restore (${topology})`,
    { skip: withoutRedis },
    async (t) => {
      const scene = await Scene.start(t, { ...options, topology });
      const { database, gateways, registries } = scene.deployment;
      const [registry] = registries;
      const [knowing] = gateways;
      if (registry === undefined || knowing === undefined) throw new Error('there is no registry, or no gateway');
      const [good, revoked] = [await scene.createKey(), await scene.createKey()];
      await scene.enrolled();
      await database.copy();
      await scene.revokeInForce(revoked);
      t.equal(await scene.decide(knowing, revoked), 401, 'the gateway has read the record of the revoked key');
      t.equal(await scene.decide(knowing, good), 200);

      await registry.kill();
      await database.putBack();
      for (const { client } of await scene.masters()) await client.flushall();
      const watches = gateways.map((gateway) => scene.watch(gateway, revoked));
      await registry.start();
      for (const gateway of gateways) {
        await scene.until(
          async () => (await scene.ask(gateway, good)).status === 200,
          `${gateway.name} accepts valid keys again`,
        );
      }
      await scene.until(async () => (await scene.heldBack()).length > 0, 'the key is held back');
      for (const gateway of gateways) {
        // Until the gateway trusts the store again, the revoked key gets 503, and `decide` repeats the request. Other
        // keys are decided from the stale cache.
        t.equal(await scene.decide(gateway, revoked), 401);
      }
      await Promise.all(watches.map((watch) => watch.stop()));
      for (const watch of watches)
        t.notOk(statusesOf(watch).includes(200), `none of ${watch.seen.length} requests is accepted`);
      const held = await scene.heldBack();
      t.same(
        held.map(({ id }) => id),
        [revoked.keyId],
      );
      t.match(held[0]?.source, /^[0-9A-Z]{26}$/, 'the gateway that knew of the revocation is named');
    },
  );
}

t.test(
  'a revocation that a gateway reports after it reconnects to Redis survives a restore too',
  { skip: withoutRedis },
  async (t) => {
    // Without preload the other gateway caches only records that were requested.
    const scene = await Scene.start(t, { ...options, topology: 'single', maxStaleSeconds: 2, preload: false });
    const { database, gateways, registries } = scene.deployment;
    const [[registry], [knowing, other]] = [registries, gateways];
    if (registry === undefined || knowing === undefined || other === undefined)
      throw new Error('there is no registry, or only one gateway');
    const [good, revoked] = [await scene.createKey(), await scene.createKey()];
    await scene.enrolled();
    await database.copy();
    await scene.revokeInForce(revoked);
    t.equal(await scene.decide(knowing, revoked), 401);

    knowing.network.set('cut');
    // After maxStaleSeconds the gateway no longer uses its cached records.
    await scene.until(
      async () => (await scene.ask(knowing, good)).status === 503,
      'the gateway that knows of the revocation rejects every request',
    );
    await registry.kill();
    await database.putBack();
    for (const { client } of await scene.masters()) await client.flushall();
    await registry.start();
    await scene.until(
      async () => (await scene.ask(other, good)).status === 200,
      'the other gateway accepts valid keys',
    );
    await scene.until(
      async () => (await scene.ask(other, revoked)).status === 200,
      'no gateway that the registry can reach knows of the revocation',
    );
    t.same(await scene.heldBack(), []);
    t.match(
      await scene.restores(),
      [{ certain: false }],
      'the registry reports the period for which changes are unknown',
    );

    knowing.network.set('open');
    await scene.until(async () => (await scene.heldBack()).length > 0, 'the key is held back');
    for (const gateway of gateways) {
      await scene.until(async () => (await scene.ask(gateway, revoked)).status === 401, `${gateway.name} rejects it`);
    }
    t.match(await scene.restores(), [{ certain: true }]);
  },
);
