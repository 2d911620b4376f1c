import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { startCluster, until } from '../adapters/redis-cluster.js';
import { withoutRedis } from '../adapters/redis-server.js';
import { startDeployment } from '../deployment/deployment.js';

interface Data {
  readonly id: string;
  readonly key: string;
  readonly keyId: string;
  readonly propagation: { gateways: number | null; confirmed: number; pending: unknown[]; projected?: false };
}

t.test('registry and gateways as processes on a Redis Cluster', { skip: withoutRedis }, async (t) => {
  const cluster = await startCluster(t);
  const [redis] = cluster.nodes;
  if (redis === undefined) throw new Error('there is no server');
  const servers = cluster.nodes.map(({ port }) => `127.0.0.1:${port}`);
  const { registry, startGateway } = await startDeployment(t, {
    ...{ throttles: true, store: { redis, fields: { cluster: servers, commandTimeoutMilliseconds: 500 } } },
  });
  const admin = (method: string, target: string, body?: object) =>
    registry.call<Data>(method, target, body ?? (method === 'GET' ? undefined : {}));
  const started = await Promise.all([1, 2, 3].map(() => startGateway()));
  const gateways = started.map(({ ask }) => ask);
  await until(
    async () => ((await admin('GET', '/gateways')).data as unknown as unknown[]).length === 3,
    'three gateways',
  );
  const merchant = await admin('POST', '/merchants', { name: 'Shop', status: 'ACTIVE', goLive: true });
  const newKey = async () => {
    const { data } = await admin('POST', `/merchants/${merchant.data.id}/keys`, { environment: 'live' });
    for (const ask of gateways)
      await until(async () => (await ask(data.key)) === 200, 'the key is accepted everywhere');
    return data;
  };
  /**
   * Revokes the key, and sends requests with it as soon as the call returns.
   * @returns the statuses; null if the registry did not confirm the revocation
   */
  const revoke = async ({ key, keyId }: { key: string; keyId: string }): Promise<number[] | null> => {
    const { status, data } = await admin('POST', `/keys/${keyId}/revoke`);
    const { gateways: live, confirmed, pending, projected } = data.propagation;
    const isConfirmed = status === 200 && live === 3 && confirmed === 3 && pending.length === 0 && projected !== false;
    return isConfirmed ? Promise.all(started.flatMap(({ decide }) => [decide(key), decide(key)])) : null;
  };
  const canary = await newKey();

  await t.test('under load, no request that starts after a confirmed revocation is accepted', async (t) => {
    const seen = new Set<number>();
    let confirmed = 0;
    for (let count = 0; count < 20; count += 1) {
      const key = await newKey();
      const state = { isRunning: true };
      const load = gateways.map(async (ask) => {
        while (state.isRunning) await ask(key.key);
      });
      const after = await revoke(key);
      state.isRunning = false;
      await Promise.all(load);
      // On a slow machine a change may stay unconfirmed, and the registry reports that. This test covers confirmed
      // changes.
      if (after === null) continue;
      confirmed += 1;
      for (const status of after) seen.add(status);
    }
    t.ok(confirmed > 0, `${confirmed} of 20 revocations were confirmed in time`);
    t.same([...seen], [401]);
  });

  await t.test(
    'after the loss of a master no valid key gets 401, and every confirmed revocation stays in force',
    async (t) => {
      const revoked = await newKey();
      await until(async () => (await revoke(revoked)) !== null || true, 'revoked');
      await until(async () => (await gateways[0]?.(revoked.key)) === 401, 'the revocation is in force');
      await cluster.settled();
      const victim = await cluster.ownerOf('mg:revision');
      const seen = { valid: new Set<number>(), revoked: new Set<number>() };
      const state = { isRunning: true };
      const load = gateways.map(async (ask) => {
        while (state.isRunning) {
          seen.valid.add(await ask(canary.key));
          seen.revoked.add(await ask(revoked.key));
          await wait(2);
        }
      });
      await victim.kill();
      await until(async () => (await cluster.ownerOf('mg:revision')).id !== victim.id, 'the replica has taken over');
      for (const ask of gateways)
        await until(async () => (await ask(canary.key)) === 200, 'requests with a valid key succeed again');
      await until(async () => {
        const key = await newKey();
        const after = await revoke(key);
        if (after !== null) t.same([...new Set(after)], [401]);
        return after !== null;
      }, 'all gateways confirm a revocation again');
      state.isRunning = false;
      await Promise.all(load);
      t.same(
        [...seen.valid].filter((status) => status !== 200 && status !== 503),
        [],
        'the outage causes only 503 for a valid key',
      );
      t.same(
        [...seen.revoked].filter((status) => status !== 401 && status !== 503),
        [],
        'a revoked key is never accepted',
      );
      await victim.restart();
      await cluster.settled();
    },
  );

  await t.test('the registry refills a flushed master, and no valid key gets 401', async (t) => {
    const seen = new Set<number>();
    const state = { isRunning: true };
    const load = gateways.map(async (ask) => {
      while (state.isRunning) {
        seen.add(await ask(canary.key));
        await wait(2);
      }
    });
    const meta = async (): Promise<string | null> => (await cluster.ownerOf('mg:meta')).client.get('mg:meta');
    const [owner, before] = [await cluster.ownerOf(`mg:merchant:${merchant.data.id}`), await meta()];
    await owner.client.flushall();
    await until(async () => ![null, before].includes(await meta()), 'a new generation has started');
    for (const ask of gateways)
      await until(async () => (await ask(canary.key)) === 200, 'requests with a valid key succeed again');
    state.isRunning = false;
    await Promise.all(load);
    t.notOk(seen.has(401), [...seen].join());
  });

  await t.test('an outage is logged once when it starts and once when it ends', (t) => {
    for (const part of [...started, registry]) {
      const log = part.log();
      const lost = log.split('Redis unavailable; retrying').length - 1;
      const found = log.split('Redis available again').length - 1;
      t.ok(lost >= 1 || part === registry, 'the outage is logged');
      t.ok(lost <= 20 && Math.abs(lost - found) <= 1, `${lost} outages and ${found} recoveries logged`);
    }
    t.end();
  });
});
