import { spawn } from 'node:child_process';
import https from 'node:https';
import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { startRedis, withoutRedis } from '../adapters/redis-server.js';
import { liveKey, recordsOf, startUpstream } from '../edge/harness.js';
import { killAtEnd, productCommand } from '../product-command.js';
import { writeGatewayConfig } from './gateway-config.js';

const burst = 10;
const notCounting = 'shared rate limit unavailable in Redis; each process counts separately';

/** A gateway in a separate process. */
interface GatewayProcess {
  /** Resolves with the status. */
  ask(): Promise<number>;
  /** Number of requests counted in this way. */
  counted(how: 'together' | 'alone'): Promise<number>;
  log(): string;
}

t.test('gateway processes enforce one rate limit per merchant together', { skip: withoutRedis }, async (t) => {
  const redis = await startRedis(t);
  const upstream = await startUpstream(t);
  const { cert, configFile } = await writeGatewayConfig(t, {
    ...{ redisUrl: redis.url, upstreamUrl: upstream.url, maxStaleSeconds: 600 },
    management: '{ host: 127.0.0.1, port: 0 }',
    more: `rateLimit: { requestsPerSecond: 1, burst: ${burst}, shared: true }`,
  });

  async function start(): Promise<GatewayProcess> {
    const child = spawn(...productCommand(['gateway', '--config', configFile]), { stdio: 'pipe' });
    killAtEnd(t, child);
    let log = '';
    const [management, port] = await new Promise<[number, number]>((resolve, reject) => {
      child.stderr.on('data', (chunk: Buffer) => {
        log += chunk.toString();
        const started = /"management":\{[^}]*"port":(\d+)\},"https":\{[^}]*"port":(\d+)\}/.exec(log);
        if (started !== null) resolve([Number(started[1]), Number(started[2])]);
      });
      child.once('exit', () => {
        reject(new Error(log));
      });
    });
    const agent = new https.Agent({ keepAlive: true, maxSockets: 8, ca: cert });
    t.teardown(() => {
      agent.destroy();
    });
    return {
      ask: () =>
        new Promise((resolve, reject) => {
          const headers = { 'x-api-key': liveKey };
          https
            .get({ host: '127.0.0.1', port, path: '/v1/transactions', agent, headers }, (response) => {
              response.resume().once('end', () => {
                resolve(response.statusCode ?? 0);
              });
            })
            .once('error', reject);
        }),
      counted: async (how) => {
        const metrics = await (await fetch(`http://127.0.0.1:${management}/metrics`)).text();
        return Number(new RegExp(`gateway_rate_limit_counts_total\\{how="${how}"\\} (\\d+)`).exec(metrics)?.[1]);
      },
      log: () => log,
    };
  }

  const seed = async (): Promise<void> => {
    for (const [name, value] of Object.entries(recordsOf(liveKey))) await redis.client.set(name, JSON.stringify(value));
  };
  const bucket = 'mg:rate:live:m_1';
  const sumOf = async (how: 'together' | 'alone'): Promise<number> => {
    const counts = await Promise.all(gateways.map((gateway) => gateway.counted(how)));
    return counts.reduce((sum, count) => sum + count, 0);
  };
  const askAll = (times: number): Promise<number[]> =>
    Promise.all(Array.from({ length: times }, () => gateways.map((gateway) => gateway.ask())).flat());

  const toldBy = (gateway: GatewayProcess): number => gateway.log().split(notCounting).length - 1;

  await seed();
  const gateways = [await start(), await start()];
  for (const gateway of gateways) while ((await gateway.ask()) === 503) await wait(10);

  await t.test('a request that one gateway admits reduces the quota at the other', async (t) => {
    // On a busy machine Redis may reply late; requests that were counted locally may then exceed the limit.
    let together = 0;
    while (together < 40) {
      await redis.client.del(bucket);
      const [before, startedAt] = [await sumOf('alone'), performance.now()];
      const statuses = await askAll(20);
      const passed = statuses.filter((status) => status === 200).length;
      t.equal(passed + statuses.filter((status) => status === 429).length, 40);
      const alone = (await sumOf('alone')) - before;
      together = 40 - alone;
      const most = burst + Math.ceil((performance.now() - startedAt) / 1000) + alone;
      t.ok(passed <= most, `${passed} admitted, limit ${most}, of which ${alone} counted locally`);
    }
    t.ok((await sumOf('together')) >= 40);
    t.ok((await redis.client.pttl(bucket)) > 0);
  });

  await t.test(
    'during a Redis outage no request is rejected or delayed because of it, and each gateway logs it once',
    async (t) => {
      const [before, toldBefore] = [await sumOf('alone'), gateways.map(toldBy)];
      await redis.kill();
      const startedAt = performance.now();
      const statuses = await askAll(20);
      const waited = performance.now() - startedAt;
      t.ok(
        statuses.every((status) => status === 200 || status === 429),
        statuses.join(),
      );
      t.ok(statuses.includes(200), 'limited by a local bucket');
      t.ok(waited < 5_000, `took ${waited} ms`);
      t.equal((await sumOf('alone')) - before, 40);
      for (const gateway of gateways) while (toldBy(gateway) === 0) await wait(10);
      await askAll(20);
      const told = gateways.map((gateway, index) => toldBy(gateway) - (toldBefore[index] ?? 0));
      t.ok(
        told.every((times) => times <= 1),
        told.join(),
      );
    },
  );

  await t.test('after the outage the gateways enforce the limit together again', async (t) => {
    await redis.restart();
    await seed();
    for (const gateway of gateways) {
      const before = await gateway.counted('together');
      while ((await gateway.counted('together')) === before) {
        t.not(await gateway.ask(), 500);
        await wait(20);
      }
    }
    t.equal(await redis.client.exists(bucket), 1);
  });
});
