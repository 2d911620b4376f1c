import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { lookupIdOf } from '../../src/gateway/api-key.js';
import { startRedis, withoutRedis } from '../adapters/redis-server.js';
import { openSite, type GatewayProcess } from '../deployment/deployment.js';
import { liveKey, recordsOf } from '../edge/harness.js';

// The drill in docs/operations.md: a Redis outage affects no merchant, not even one without earlier requests.

const [keyCount, merchantCount, gatewayCount] = [300, 10, 3];
const stoppedMilliseconds = 10_000;
const keyNumber = (number: number): string => `svc_live_Drill${String(number).padStart(4, '0')}`;

interface Gateway {
  readonly ask: (key: string) => Promise<number>;
  readonly records: () => Promise<{ readonly state: string; readonly keys: number; readonly merchants: number }>;
}

t.test('while Redis is stopped, three gateways reject no valid key', { skip: withoutRedis }, async (t) => {
  const redis = await startRedis(t, ['appendonly yes', 'appendfsync always']);
  const { startGateway } = await openSite(t, {
    ...{ store: { redis, fields: { url: redis.url } }, management: true, throttles: true },
    settings: { keyStore: { cache: { maxStaleSeconds: 30 } } },
  });
  await seed(redis.client);
  const gateways = await Promise.all(
    Array.from({ length: gatewayCount }, async () => withRecords(await startGateway())),
  );
  const allHeld = async (): Promise<void> => {
    for (const { records } of gateways) {
      for (let stats = await records(); stats.state !== 'complete'; stats = await records()) await wait(50);
      t.match(await records(), { state: 'complete', keys: keyCount, merchants: merchantCount });
    }
  };

  // Sends one request with each key of a third to each gateway, spread over this time. Counts the responses by status.
  // The keys of an outage had no earlier requests, so no gateway has cached their records because of such a request.
  const share = keyCount / 3;
  const askedWhile = async (from: number, milliseconds: number): Promise<Record<number, number>> => {
    const counts: Record<number, number> = {};
    for (let number = from; number < from + share; number += 1) {
      for (const { ask } of gateways) {
        const status = await ask(keyNumber(number));
        counts[status] = (counts[status] ?? 0) + 1;
      }
      await wait(milliseconds / share);
    }
    return counts;
  };
  const all = { 200: share * gatewayCount };

  await allHeld();
  redis.signal('SIGSTOP');
  t.teardown(() => {
    redis.signal('SIGCONT');
  });
  t.same(await askedWhile(0, stoppedMilliseconds), all, 'Redis does not reply');
  redis.signal('SIGCONT');
  t.same(await askedWhile(share, 2_000), all, 'Redis replies again');
  await allHeld();
  await redis.kill();
  t.same(await askedWhile(2 * share, stoppedMilliseconds), all, 'Redis is down');
  await redis.restart();
  t.same(await askedWhile(0, 2_000), all, 'Redis is up again');
  await allHeld();
});

/**
 * Writes records as a registry of the previous release does. Gateways cache such records without a grant (permission)
 * of the registry.
 */
async function seed(client: Awaited<ReturnType<typeof startRedis>>['client']): Promise<void> {
  const { 'mg:meta': meta, ...records }: Record<string, unknown> = recordsOf(liveKey);
  const [key, merchant] = ['mg:key:', 'mg:merchant:'].map(
    (prefix) => Object.entries(records).find(([name]) => name.startsWith(prefix))?.[1] as object,
  );
  const pipeline = client.pipeline();
  for (let number = 0; number < keyCount; number += 1) {
    const record = { ...key, keyId: `key_${number}`, merchantId: `m_${number % merchantCount}` };
    pipeline.set(`mg:key:${lookupIdOf(keyNumber(number), null)}`, JSON.stringify(record));
  }
  for (let number = 0; number < merchantCount; number += 1)
    pipeline.set(`mg:merchant:m_${number}`, JSON.stringify({ ...merchant, merchantId: `m_${number}` }));
  await pipeline.set('mg:revision', '1').set('mg:meta', JSON.stringify(meta)).exec();
}

function withRecords({ ask, page }: GatewayProcess): Gateway {
  return {
    ask,
    records: async () => {
      const { details } = JSON.parse((await page('readyz')).body) as {
        details: { records: Awaited<ReturnType<Gateway['records']>> };
      };
      return details.records;
    },
  };
}
