import path from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { withoutRedis } from '../adapters/redis-server.js';
import { lookupIdOf } from '../../src/gateway/api-key.js';
import type { TestKey } from '../truth/keys.js';
import { lastAccepted, Scene, statusesOf } from '../truth/scene.js';
import { restartWith, takeSnapshot, type DataServer } from '../truth/stores.js';

/**
 * Injects a fault into a Cluster master, and resolves when all servers run again. `copy` is the file of an old snapshot
 * of the master.
 */
type Fault = (master: DataServer, scene: Scene, copy: string) => Promise<unknown>;

/**
 * The master that stores the record of a key. On a busy machine that master can reply late, so one look is not enough.
 */
const ownerOf = async ({ key }: TestKey, scene: Scene): Promise<DataServer> => {
  const name = `mg:key:${lookupIdOf(key, null)}`;
  let owner: DataServer | null = null;
  await scene.until(async () => {
    const masters = await scene.deployment.store.masters();
    const found = await Promise.all(masters.map(({ client }) => client.exists(name).catch(() => 0)));
    owner = masters[found.indexOf(1)] ?? null;
    return owner !== null;
  }, 'a master has the key');
  return owner as unknown as DataServer;
};

const replicaOf = async ({ client }: DataServer, { deployment }: Scene): Promise<DataServer> => {
  const [, , replicas] = (await client.role()) as [string, number, [string, string, string][]];
  const port = Number(replicas[0]?.[1]);
  const replica = deployment.store.data.find((server) => server.port === port);
  if (replica === undefined) throw new Error('the master has no replica');
  return replica;
};

/** The faults in their order; each starts from a healthy Cluster. */
const faults: Readonly<Record<string, Fault>> = {
  'a master is emptied': ({ client }) => client.flushall(),
  'a master restarts with an old snapshot': (master, _scene, copy) => restartWith(master, copy),
  'a master hands over to its replica': async (master, scene) => {
    const replica = await replicaOf(master, scene);
    await replica.client.call('CLUSTER', 'FAILOVER');
    await scene.until(async () => (await replica.client.role())[0] === 'master', 'the replica has taken over');
  },
  'a master crashes, and its replica takes over': async (master, scene) => {
    const replica = await replicaOf(master, scene);
    await master.kill();
    await scene.until(async () => (await replica.client.role())[0] === 'master', 'the replica has taken over');
    await master.restart();
  },
};

t.test('registry and gateways recover from Cluster faults without intervention', { skip: withoutRedis }, async (t) => {
  const scene = await Scene.start(t, {
    ...{ topology: 'cluster', gateways: 2, registries: 1, maxStaleSeconds: 3, dist: path.resolve('dist') },
  });
  const { store, gateways } = scene.deployment;
  await scene.enrolled();
  for (const [what, fault] of Object.entries(faults)) {
    await t.test(what, async (t) => {
      await store.settled();
      const [ended, revoked] = [await scene.createKey(), await scene.createKey()];
      const master = await ownerOf(ended, scene);
      let canary = await scene.createKey();
      while ((await ownerOf(canary, scene)).port !== master.port) canary = await scene.createKey();
      const copy = await takeSnapshot(master);
      const { received: endedAt } = await scene.revokeInForce(ended);
      const good = gateways.map((gateway) => scene.watch(gateway, canary));
      const bad = gateways.flatMap((gateway) => [scene.watch(gateway, revoked), scene.watch(gateway, ended)]);
      await fault(master, scene, copy);
      const gone = performance.now();
      for (const gateway of gateways) {
        await scene.until(async () => {
          const asked = await scene.ask(gateway, canary);
          return asked.sent > gone && asked.status === 200;
        }, `${gateway.name} decides`);
      }
      const decided = performance.now();
      const { received: inForce } = await scene.revokeInForce(revoked);
      t.comment(
        `all gateways decide after ${Math.round(decided - gone)} ms, a change is in force after ${Math.round(inForce - gone)} ms`,
      );
      await wait(1_000);
      for (const watch of bad) {
        await scene.until(
          () => Promise.resolve(watch.seen.at(-1)?.status === 401),
          'a bad key is called bad in the end',
        );
      }
      await Promise.all([...good, ...bad].map((watch) => watch.stop()));
      for (const [index, watch] of bad.entries()) {
        const from = index % 2 === 0 ? inForce : endedAt;
        t.ok((lastAccepted(watch) ?? -Infinity) < from, `${watch.seen.length} requests`);
      }
      for (const watch of good) {
        t.same(
          statusesOf(watch).filter((status) => status !== 200 && status !== 503),
          [],
          'no request with a valid key gets anything but 200 or 503',
        );
        const refused = watch.seen.filter(({ status }) => status !== 200);
        t.comment(`${refused.length} of ${watch.seen.length} requests with a good key were refused`);
      }
    });
  }
});
