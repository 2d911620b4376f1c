import path from 'node:path';
import t from 'tap';
import { withoutRedis } from '../adapters/redis-server.js';
import { Scene, statusesOf } from '../truth/scene.js';

const options = { gateways: 2, registries: 1, maxStaleSeconds: 20, dist: path.resolve('dist') } as const;

// The database was restored and Redis was emptied: a key that had been revoked since the backup worked again, although a gateway
// that had refused it all the while still held its record.
for (const topology of ['single', 'cluster'] as const) {
  t.test(
    `a revocation that only a gateway knows survives a restore (${topology})`,
    { skip: withoutRedis },
    async (t) => {
      const scene = await Scene.start(t, { ...options, topology });
      const { database, gateways, registries, store } = scene.deployment;
      const [registry] = registries;
      const [knows] = gateways;
      if (registry === undefined || knows === undefined) throw new Error('there is no registry, or no gateway');
      const [good, revoked] = [await scene.createKey(), await scene.createKey()];
      await scene.enrolled();
      await database.copy();
      await scene.revokeInForce(revoked);
      t.equal((await scene.ask(knows, revoked)).status, 401, 'the gateway has read the record of the revoked key');
      t.equal((await scene.ask(knows, good)).status, 200);

      await registry.kill();
      await database.putBack();
      for (const { client } of await store.masters()) await client.flushall();
      const watches = gateways.map((gateway) => scene.watch(gateway, revoked));
      await registry.start();
      for (const gateway of gateways) {
        await scene.until(async () => (await scene.ask(gateway, good)).status === 200, `${gateway.name} decides again`);
      }
      await scene.until(async () => (await scene.heldBack()).length > 0, 'the key is held back');
      for (const gateway of gateways) {
        // What a gateway holds is served as stale before its store is believed again: that is no decision about this key.
        let status: number | null = null;
        const isDecided = async (): Promise<boolean> => (status = (await scene.ask(gateway, revoked)).status) !== 503;
        await scene.until(isDecided, `${gateway.name} decides about the revoked key`);
        t.equal(status, 401);
      }
      await Promise.all(watches.map((watch) => watch.stop()));
      for (const watch of watches)
        t.notOk(statusesOf(watch).includes(200), `${watch.seen.length} requests, none accepted`);
      const held = await scene.heldBack();
      t.same(
        held.map(({ id }) => id),
        [revoked.keyId],
      );
      t.match(held[0]?.source, /^[0-9A-Z]{26}$/, 'the gateway that knew is named');
    },
  );
}

t.test(
  'a revocation that a gateway reports after it reconnects to Redis survives a restore too',
  { skip: withoutRedis },
  async (t) => {
    // The other gateway is to know only what it is asked for.
    const scene = await Scene.start(t, { ...options, topology: 'single', maxStaleSeconds: 2, preload: false });
    const { database, gateways, registries, store } = scene.deployment;
    const [[registry], [knows, other]] = [registries, gateways];
    if (registry === undefined || knows === undefined || other === undefined) throw new Error('a party is missing');
    const [good, revoked] = [await scene.createKey(), await scene.createKey()];
    await scene.enrolled();
    await database.copy();
    await scene.revokeInForce(revoked);
    t.equal((await scene.ask(knows, revoked)).status, 401);

    knows.network.set('cut');
    // Past its lifetime the gateway has dropped what it held.
    await scene.until(
      async () => (await scene.ask(knows, good)).status === 503,
      'the gateway that knows decides nothing',
    );
    await registry.kill();
    await database.putBack();
    for (const { client } of await store.masters()) await client.flushall();
    await registry.start();
    await scene.until(async () => (await scene.ask(other, good)).status === 200, 'the other gateway decides');
    await scene.until(
      async () => (await scene.ask(other, revoked)).status === 200,
      'nobody whom the registry can ask knows',
    );
    t.same(await scene.heldBack(), []);
    t.match(await scene.restores(), [{ certain: false }], 'so the registry names the period');

    knows.network.set('open');
    await scene.until(async () => (await scene.heldBack()).length > 0, 'the key is held back');
    for (const gateway of gateways) {
      await scene.until(async () => (await scene.ask(gateway, revoked)).status === 401, `${gateway.name} refuses it`);
    }
    t.match(await scene.restores(), [{ certain: true }]);
  },
);
