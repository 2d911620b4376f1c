import path from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { withoutRedis } from '../adapters/redis-server.js';
import { Scene, statusesOf } from '../truth/scene.js';

// The drill in docs/operations.md. Regression: after FLUSHALL every request got 503 until the last record was
// rewritten.
for (const topology of ['single', 'cluster'] as const) {
  t.test(
    `after FLUSHALL gateways reject no key that they have cached (${topology})`,
    { skip: withoutRedis },
    async (t) => {
      const scene = await Scene.start(t, {
        ...{ topology, gateways: 2, registries: 1, maxStaleSeconds: 30, dist: path.resolve('dist') },
      });
      const { gateways, registries, store } = scene.deployment;
      const [registry] = registries;
      if (registry === undefined) throw new Error('there is no registry');
      const keys = [await scene.createKey(), await scene.createKey()] as const;
      await scene.enrolled();
      const generationOf = async (): Promise<string | undefined> => {
        const metas = await Promise.all(
          (await store.masters()).map(({ client }) => client.get('mg:meta').catch(() => null)),
        );
        return /"generation":"(\w+)"/.exec(metas.find((meta) => meta !== null) ?? '')?.[1];
      };
      const before = await generationOf();
      const watches = gateways.flatMap((gateway) => keys.map((key) => scene.watch(gateway, key)));

      // Without a registry Redis stays empty for a while.
      await registry.kill();
      for (const { client } of await scene.masters()) await client.flushall();
      await wait(3_000);
      for (const watch of watches) t.same(statusesOf(watch), [200], `${watch.seen.length} requests with cached keys`);
      await registry.start();
      await scene.until(
        async () => ![undefined, before].includes(await generationOf()),
        'a new generation has started',
      );
      await scene.enrolled();
      await Promise.all(watches.map((watch) => watch.stop()));
      // After the records were written anew, a gateway of a Cluster needs the markers that prove each slot complete. It
      // can send 503 until it has read them.
      const allowed = topology === 'single' ? [200] : [200, 503];
      for (const watch of watches)
        t.ok(
          statusesOf(watch).every((status) => status !== null && allowed.includes(status)),
          `${watch.seen.length} requests: ${statusesOf(watch).join()}`,
        );

      const revoked = keys[0];
      await scene.revokeInForce(revoked);
      for (const gateway of gateways) t.equal(await scene.decide(gateway, revoked), 401, 'a revocation is in force');
    },
  );
}
