import { spawn } from 'node:child_process';
import https from 'node:https';
import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { lookupIdOf } from '../../src/gateway/api-key.js';
import { startRedis, withoutRedis } from '../adapters/redis-server.js';
import { liveKey, recordsOf, startUpstream } from '../edge/harness.js';
import type { Teardown } from '../edge/harness.js';
import { killAtEnd, productCommand } from '../product-command.js';
import { writeGatewayConfig } from './gateway-config.js';

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
  const upstream = await startUpstream(t);
  const { cert, configFile } = await writeGatewayConfig(t, {
    ...{ redisUrl: redis.url, upstreamUrl: upstream.url, maxStaleSeconds: 30 },
    management: '{ host: 127.0.0.1, port: 0 }',
  });
  await seed(redis.client);
  const gateways = await Promise.all(Array.from({ length: gatewayCount }, () => start(t, configFile, cert)));
  const allHeld = async (): Promise<void> => {
    for (const { records } of gateways) {
      for (let figures = await records(); figures.state !== 'complete'; figures = await records()) await wait(50);
      t.match(await records(), { state: 'complete', keys: keyCount, merchants: merchantCount });
    }
  };

  // Sends one request per key and gateway, so that no gateway has cached the record.
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

/** Writes records as a registry of the previous release does: gateways cache them without a grant. */
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

async function start(t: Teardown, configFile: string, ca: string): Promise<Gateway> {
  const child = spawn(...productCommand(['gateway', '--config', configFile]), { stdio: 'pipe' });
  killAtEnd(t, child);
  const port = (log: string, name: string): number | undefined => {
    const found = new RegExp(`"${name}":\\{"address":"127\\.0\\.0\\.1","family":"IPv4","port":(\\d+)\\}`).exec(log);
    return found === null ? undefined : Number(found[1]);
  };
  let log = '';
  const [management = 0, requests = 0] = await new Promise<(number | undefined)[]>((resolve, reject) => {
    child.stderr.on('data', (chunk: Buffer) => {
      log += chunk.toString();
      const ports = [port(log, 'management'), port(log, 'https')];
      if (!ports.includes(undefined)) resolve(ports);
    });
    child.once('exit', () => {
      reject(new Error(log));
    });
  });
  const agent = new https.Agent({ keepAlive: true, maxSockets: 8, ca });
  t.teardown(() => {
    agent.destroy();
  });
  const ask = (key: string): Promise<number> =>
    new Promise((resolve, reject) => {
      const options = { host: '127.0.0.1', port: requests, path: '/v1/transactions', agent };
      https
        .get({ ...options, headers: { 'x-api-key': key } }, (response) => {
          response.resume().once('end', () => {
            resolve(response.statusCode ?? 0);
          });
        })
        .once('error', reject);
    });
  const records: Gateway['records'] = async () => {
    const response = await fetch(`http://127.0.0.1:${management}/readyz`);
    const { details } = (await response.json()) as { details: { records: Awaited<ReturnType<Gateway['records']>> } };
    return details.records;
  };
  return { ask, records };
}
