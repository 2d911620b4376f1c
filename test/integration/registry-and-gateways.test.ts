import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import https from 'node:https';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { createSelfSigned } from '../../src/cli/dev/self-signed.js';
import { startRedis, withoutRedis } from '../adapters/redis-server.js';
import { startUpstream } from '../edge/harness.js';
import { killAtEnd, newInstallation, productCommand } from '../product-command.js';

const token = 'an-administrators-token-of-enough-characters';

interface Envelope {
  readonly success: boolean;
  readonly message: string;
  readonly data: Record<string, unknown> & {
    readonly id?: string;
    readonly keyId?: string;
    readonly key?: string;
    readonly propagation?: {
      gateways: number;
      confirmed: number;
      pending: { instanceId: string; staleUntil: string }[];
    };
  };
}

t.test(
  'registry, Redis and gateways as processes: once a revocation returns, every gateway enforces it',
  { skip: withoutRedis },
  async (t) => {
    const redis = await startRedis(t);
    const upstream = await startUpstream(t);
    const { cert, key: certKey } = await createSelfSigned(new Date());
    const directory = await mkdtemp(path.join(tmpdir(), 'merchant-gateway-registry-'));
    t.teardown(() => rm(directory, { recursive: true, force: true }));
    const file = (name: string) => path.join(directory, name);
    await writeFile(file('cert.txt'), cert);
    await writeFile(file('key.txt'), certKey);
    await writeFile(file('token.txt'), `${token}\n`);
    await writeFile(file('pepper.txt'), 'a pepper of the test, long enough\n');
    await writeFile(
      file('config.yaml'),
      `listen:
  https: { host: 127.0.0.1, port: 0, certFile: ${file('cert.txt')}, keyFile: ${file('key.txt')} }
  http: null
  management: null
torExits: { enabled: false }
accessLog: { destination: ${file('access.log')} }
keys: { pepperFile: ${file('pepper.txt')} }
keyStore: { kind: redis, redis: { url: "${redis.url}" }, cache: { maxStaleSeconds: 3 } }
registry: { listen: { port: 0 }, database: { url: "sqlite:${file('registry.db')}" }, tokenFile: ${file('token.txt')} }
upstreams: { transactions: { url: "${upstream.url}" } }
routes: [{ path: /transactions, upstream: transactions, resource: transactions }]
`,
    );
    let logs = '';
    async function start(command: string, started: RegExp): Promise<{ child: ChildProcess; match: string }> {
      const child = spawn(...productCommand([command, '--config', file('config.yaml'), ...newInstallation(command)]), {
        stdio: 'pipe',
      });
      killAtEnd(t, child);
      let log = '';
      const match = await new Promise<string>((resolve, reject) => {
        child.stderr.on('data', (chunk: Buffer) => {
          log += chunk.toString();
          logs += chunk.toString();
          const found = started.exec(log)?.[1];
          if (found !== undefined) resolve(found);
        });
        child.once('exit', () => {
          reject(new Error(`${command} ended: ${log}`));
        });
      });
      return { child, match };
    }
    const startRegistry = () => start('registry', /"url":"(http:[^"]+)"/);
    let registry = await startRegistry();

    async function admin(method: string, target: string, body?: object): Promise<{ status: number } & Envelope> {
      const response = await fetch(registry.match + target, {
        method,
        headers: {
          authorization: `Bearer ${token}`,
          ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      });
      return { status: response.status, ...((await response.json()) as Envelope) };
    }

    interface Gateway {
      readonly child: ChildProcess;
      ask(key: string): Promise<number>;
    }
    async function startGateway(): Promise<Gateway> {
      const { child, match } = await start(
        'gateway',
        /"https":\{"address":"127\.0\.0\.1","family":"IPv4","port":(\d+)\}/,
      );
      const agent = new https.Agent({ keepAlive: true, maxSockets: 16, ca: cert });
      t.teardown(() => {
        agent.destroy();
      });
      const ask = (key: string) =>
        new Promise<number>((resolve, reject) => {
          const options = { host: '127.0.0.1', port: Number(match), path: '/v1/transactions', agent };
          https
            .get({ ...options, headers: { 'x-api-key': key } }, (response) => {
              response.resume().once('end', () => {
                resolve(response.statusCode ?? 0);
              });
            })
            .once('error', reject);
        });
      return { child, ask };
    }
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
      t.match(created, { status: 201, data: { propagation: { gateways: 3, confirmed: 3, pending: [] } } });
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
        t.match(revoked, { status: 200, data: { propagation: { gateways: 3, confirmed: 3, pending: [] } } });
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
      registry.child.kill('SIGKILL');
      await once(registry.child, 'exit');
      t.equal(await first.ask(key), 200, 'gateways work without the registry');
      registry = await startRegistry();
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
      const stored: string[] = [logs];
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

    registry.child.kill('SIGTERM');
    t.same(await once(registry.child, 'exit'), [0, null], 'the registry exits cleanly');
  },
);
