import { spawn } from 'node:child_process';
import https from 'node:https';
import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { runIdOf, startRedis, withoutRedis } from '../adapters/redis-server.js';
import { liveKey, recordsOf, startUpstream } from '../edge/harness.js';
import { killAtEnd, productCommand } from '../product-command.js';
import { writeGatewayConfig } from './gateway-config.js';

const ports =
  /"management":\{"address":"127\.0\.0\.1","family":"IPv4","port":(\d+)\}.*"https":\{"address":"127\.0\.0\.1","family":"IPv4","port":(\d+)\}/;

// Without a grant a gateway reads Redis on each request; all traffic right after the start would incur that read.
t.test('a gateway becomes ready once it has its grant, or after a timeout', { skip: withoutRedis }, async (t) => {
  const redis = await startRedis(t);
  const upstream = await startUpstream(t);
  const records = { ...recordsOf(liveKey) } as Record<string, object>;
  records['mg:meta'] = { ...records['mg:meta'], servers: [await runIdOf(redis)], replicas: 0 };
  for (const [name, value] of Object.entries(records)) await redis.client.set(name, JSON.stringify(value));
  await redis.client.set('mg:revision', '1');
  const { cert, configFile } = await writeGatewayConfig(t, {
    ...{ redisUrl: redis.url, upstreamUrl: upstream.url, maxStaleSeconds: 30 },
    management: '{ host: 127.0.0.1, port: 0 }',
  });
  const child = spawn(...productCommand(['gateway', '--config', configFile]), { stdio: 'pipe' });
  killAtEnd(t, child);
  let log = '';
  const [management, port] = await new Promise<number[]>((resolve, reject) => {
    child.stderr.on('data', (chunk: Buffer) => {
      log += chunk.toString();
      const [, ...found] = ports.exec(log) ?? [];
      if (found.length > 0) resolve(found.map(Number));
    });
    child.once('exit', () => {
      reject(new Error(log));
    });
  });
  const agent = new https.Agent({ keepAlive: true, ca: cert });
  t.teardown(() => {
    agent.destroy();
  });
  const ask = () =>
    new Promise<number>((resolve, reject) => {
      const options = { host: '127.0.0.1', port, path: '/v1/transactions', agent, headers: { 'x-api-key': liveKey } };
      const request = https.get(options, (response) => {
        response.resume().once('end', () => {
          resolve(response.statusCode ?? 0);
        });
      });
      request.once('error', reject);
    });

  const readiness: { status: number; text: string; asked: number }[] = [];
  for (let status = 0; status !== 200;) {
    await wait(20);
    const response = await fetch(`http://127.0.0.1:${management ?? 0}/readyz`);
    const text = await response.text();
    status = response.status;
    readiness.push({ status, text, asked: text.includes('waiting for the registry') ? await ask() : 200 });
    if (readiness.length > 1_500) throw new Error(`never ready: ${text}`);
  }
  const waiting = readiness.filter(({ text }) =>
    text.includes('key store: waiting for the registry to enrol this gateway'),
  );
  t.ok(waiting.length > 0, `waiting at ${waiting.length} of ${readiness.length} readiness checks`);
  t.same([...new Set(waiting.map(({ status }) => status))], [503]);
  t.same([...new Set(waiting.map(({ asked }) => asked))], [200], 'requests in the meantime get 200');
  while (!log.includes('the registry has not enrolled this gateway')) await wait(20);
  t.equal(await ask(), 200);
});
