import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { withoutRedis } from '../adapters/redis-server.js';
import { openSite } from '../deployment/deployment.js';
import { liveKey, recordsOf } from '../edge/harness.js';

const burst = 10;
const notCounting = 'the shared rate limit in Redis is unavailable; each gateway process counts separately';

/** A gateway in a separate process. */
interface GatewayProcess {
  /** Sends a request; resolves with the status. */
  ask(): Promise<number>;
  /** Number of requests that this process counted in Redis (`together`), or only for itself (`alone`). */
  counted(how: 'together' | 'alone'): Promise<number>;
  log(): string;
}

t.test('gateway processes enforce one rate limit per merchant together', { skip: withoutRedis }, async (t) => {
  const { redis, startGateway } = await openSite(t, {
    ...{ throttles: true, management: true },
    settings: {
      keyStore: { cache: { maxStaleSeconds: 600 } },
      rateLimit: { requestsPerSecond: 1, burst, shared: true },
    },
  });

  async function start(): Promise<GatewayProcess> {
    const gateway = await startGateway();
    return {
      ask: () => gateway.ask(liveKey),
      counted: async (how) => {
        const { body } = await gateway.page('metrics');
        return Number(new RegExp(`gateway_rate_limit_counts_total\\{how="${how}"\\} (\\d+)`).exec(body)?.[1]);
      },
      log: gateway.log,
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

  const warningsOf = (gateway: GatewayProcess): number => gateway.log().split(notCounting).length - 1;

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
      // Requests that were counted locally before may have emptied the local bucket of each gateway. After this wait
      // each of these buckets has a token again.
      await wait(1_100);
      const [before, warningsBefore] = [await sumOf('alone'), gateways.map(warningsOf)];
      await redis.kill();
      const startedAt = performance.now();
      const statuses = await askAll(20);
      const waited = performance.now() - startedAt;
      t.ok(
        statuses.every((status) => status === 200 || status === 429),
        statuses.join(),
      );
      t.ok(statuses.includes(200), 'limited by a local bucket');
      // Only the first requests of an outage can wait for Redis. The rest of the limit allows for a stall of the
      // machine, which takes up to five seconds.
      t.ok(waited < 8_000, `took ${waited} ms`);
      t.equal((await sumOf('alone')) - before, 40);
      for (const gateway of gateways) while (warningsOf(gateway) === 0) await wait(10);
      await askAll(20);
      const warnings = gateways.map((gateway, index) => warningsOf(gateway) - (warningsBefore[index] ?? 0));
      t.ok(
        warnings.every((times) => times <= 1),
        warnings.join(),
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
    // A request creates the bucket in Redis. The bucket expires once it is full again, after a second or two.
    const [first] = gateways;
    while ((await redis.client.exists(bucket)) === 0) await first?.ask();
  });
});
