import { readdir, readFile } from 'node:fs/promises';
import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { withoutRedis } from '../adapters/redis-server.js';
import { startDeployment } from '../deployment/deployment.js';
import { emptyList } from '../empty-list.js';

interface Data {
  readonly id?: string;
  readonly keyId?: string;
  readonly key?: string;
  readonly propagation?: {
    gateways: number;
    confirmed: number;
    pending: { instanceId: string; staleUntil: string }[];
  };
}

t.test(
  'registry, Redis and gateways as processes: once a revocation returns, every gateway enforces it',
  { skip: withoutRedis },
  async (t) => {
    const deployment = await startDeployment(t, {
      ...{ pepper: true, throttles: true, settings: { keyStore: { cache: { maxStaleSeconds: 3 } } } },
    });
    const { redis, directory, file } = deployment;
    let logs = '';
    const admin = (method: string, target: string, body?: object) =>
      deployment.registry.call<Data>(method, target, body);
    const startGateway = () => deployment.startGateway();
    const gateways = [await startGateway(), await startGateway(), await startGateway()];
    const [first] = gateways;
    if (first === undefined) throw new Error('there is no gateway');
    for (;;) {
      const { data } = await admin('GET', '/gateways');
      if ((data as unknown as unknown[]).length === 3) break;
      await wait(20);
    }

    const merchant = await admin('POST', '/merchants', { name: 'Shop', status: 'ACTIVE', goLive: true });
    t.equal(merchant.status, 201);
    const merchantId = merchant.data.id ?? '';
    const newKey = async () => {
      const created = await admin('POST', `/merchants/${merchantId}/keys`, { environment: 'live' });
      t.match(created, { status: 201, data: { propagation: { gateways: 3, confirmed: 3, pending: emptyList } } });
      return { key: created.data.key ?? '', keyId: created.data.keyId ?? '' };
    };
    const canary = await newKey();

    await t.test('under load, no request that starts after a revocation returned is accepted', async (t) => {
      for (let count = 0; count < 25; count += 1) {
        const { key, keyId } = await newKey();
        let running = true;
        const accepted = gateways.map(() => 0);
        const load = gateways.map(async (gateway, index) => {
          while (running) if ((await gateway.ask(key)) === 200) accepted[index] = (accepted[index] ?? 0) + 1;
        });
        while (!accepted.every((some) => some > 0)) await wait(1); // each gateway has cached the record and has load
        const revoked = await admin('POST', `/keys/${keyId}/revoke`);
        const after = await Promise.all(gateways.flatMap((gateway) => [gateway.ask(key), gateway.ask(key)]));
        running = false;
        await Promise.all(load);
        t.match(revoked, { status: 200, data: { propagation: { gateways: 3, confirmed: 3, pending: emptyList } } });
        t.same([...new Set(after)], [401]);
      }
    });

    await t.test('a stopped gateway is listed as pending, and uses no cached record when it resumes', async (t) => {
      const { key, keyId } = await newKey();
      for (const gateway of gateways) t.equal(await gateway.ask(key), 200);
      first.child.kill('SIGSTOP');
      const revoked = await admin('POST', `/keys/${keyId}/revoke`);
      first.child.kill('SIGCONT');
      t.match(revoked.data.propagation, { gateways: 3, confirmed: 2 });
      t.equal(revoked.data.propagation?.pending.length, 1);
      t.ok(Date.parse(revoked.data.propagation?.pending[0]?.staleUntil ?? '') > Date.now());
      t.ok([401, 503].includes(await first.ask(key)));
    });

    await t.test('a flushed Redis is refilled automatically, and no valid key gets 401 in the meantime', async (t) => {
      t.equal(await first.ask(canary.key), 200);
      await redis.client.flushall();
      const seen = new Set<number>();
      let status = 0;
      do {
        status = await first.ask(canary.key);
        seen.add(status);
        await wait(5);
      } while (!(status === 200 && seen.has(503)) && seen.size < 3 && !(await seeded()));
      while ((await first.ask(canary.key)) !== 200) await wait(5);
      t.notOk(seen.has(401));
      async function seeded(): Promise<boolean> {
        return (await redis.client.get('mg:meta'))?.includes('"version":1') === true;
      }
    });

    await t.test('a registry crash loses no change that was confirmed', async (t) => {
      const { key, keyId } = await newKey();
      logs += deployment.registry.log();
      await deployment.registry.kill();
      t.equal(await first.ask(key), 200, 'gateways work without the registry');
      await deployment.restartRegistry();
      t.match(await admin('POST', `/keys/${keyId}/revoke`), { data: { status: 'REVOKED' } });
      let status = 200;
      for (let count = 0; status === 200 && count < 2_000; count += 1) {
        status = await first.ask(key);
        await wait(10);
      }
      t.equal(status, 401);
    });

    await t.test('no 6-character part of a key occurs in Redis, SQL, logs or responses to others', async (t) => {
      await first.ask(`${canary.key}x`);
      await admin('POST', `/keys/${canary.keyId}/revoke`);
      await first.ask(canary.key);
      const stored = [logs, deployment.registry.log(), ...gateways.map((gateway) => gateway.log())];
      for (const name of await redis.client.keys('*')) stored.push(name, (await redis.client.get(name)) ?? '');
      for (const name of await readdir(directory)) stored.push(await readFile(file(name), 'latin1'));
      for (const target of ['/merchants', `/merchants/${merchantId}/keys`, '/events?per_page=100', '/gateways']) {
        stored.push(JSON.stringify(await admin('GET', target)));
      }
      const everything = stored.join('\n');
      const secret = canary.key.slice('svc_live_'.length);
      for (let at = 0; at + 6 <= secret.length; at += 1) {
        if (everything.includes(secret.slice(at, at + 6))) t.fail(`the part at offset ${at} of the key is stored`);
      }
      t.match(everything, canary.keyId, 'the searched text contains the written data');
    });

    t.same(await deployment.registry.stop(), [0, null], 'the registry exits cleanly');
  },
);
