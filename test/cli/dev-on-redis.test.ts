import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile, writeFile } from 'node:fs/promises';
import net from 'node:net';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import t from 'tap';
import { liveKey, recordsOf } from '../edge/harness.js';
import { startRedis, withoutRedis } from '../adapters/redis-server.js';
import { killAtEnd, productCommand } from '../product-command.js';
import { curlLines, directory, freePorts, hasCurl, paste, startDev } from './dev-process.js';
import type { Run } from './dev-process.js';

/**
 * Runs the first printed curl command, which requests a list with the printed key.
 * @returns the status of the response
 */
async function listStatus({ welcome }: Run): Promise<number> {
  const [list = ''] = curlLines(welcome);
  return (await paste(list)).status;
}

// Regression: on a Redis that another `dev` had used, `dev` printed a key that its gateway always rejected. The
// registry of the new `dev` had a new database, and did not take over the records that the other `dev` had left.
t.test(
  'dev works on a Redis that another dev has used or is using',
  { skip: (!hasCurl && 'curl is not installed') || withoutRedis },
  async (t) => {
    const redis = await startRedis(t);
    const env = { REDIS_URL: redis.url };
    const killed = await startDev(t, [], env);
    t.equal(await listStatus(killed), 200);
    await killed.end('SIGKILL');
    const left = await redis.client.keys('*');
    t.ok(left.every((name) => name.startsWith('mg-dev:')));
    const [one, other] = [await startDev(t, [], env), await startDev(t, [], env)];
    t.same([await listStatus(one), await listStatus(other)], [200, 200], 'two at the same time');
    t.equal(await one.end('SIGINT'), 0);
    t.equal(await listStatus(other), 200);
    t.equal(await other.end('SIGINT'), 0);
    const rest = await redis.client.keys('*');
    t.same(
      rest.filter((name) => !name.includes(':gateway:')).toSorted(),
      left.filter((name) => !name.includes(':gateway:')).toSorted(),
      'each dev deletes only its own records',
    );

    const kept = ['--data-dir', path.join(directory, 'on-redis')];
    const first = await startDev(t, kept, env);
    const [list = ''] = curlLines(first.welcome);
    await first.end('SIGINT');
    const again = await startDev(t, kept, env);
    t.notMatch(again.welcome, /x-api-key: svc_live_/);
    const port = /https:\/\/[^:]+:(\d+)/.exec(again.welcome)?.[1] ?? '';
    t.equal(
      (await paste(list.replace(/(https:\/\/[^:]+):\d+/, `$1:${port}`))).status,
      200,
      'the key of a preserved data directory is accepted',
    );
    t.equal(await again.end('SIGINT'), 0);
  },
);

t.test('a failed start on Redis ends the process and leaves no records', { skip: withoutRedis }, async (t) => {
  const redis = await startRedis(t);
  const taken = net.createServer().listen(0, '127.0.0.1');
  await once(taken, 'listening');
  t.teardown(() => taken.close());
  const { port } = taken.address() as AddressInfo;
  const text = await readFile(freePorts, 'utf8');
  for (const part of ['registry', 'services']) {
    const file = path.join(directory, `taken-${part}.yaml`);
    await writeFile(file, text.replace(`${part}: { listen: { port: 0 }`, `${part}: { listen: { port: ${port} }`));
    const child = spawn(...productCommand(['dev', '--config', file]), {
      stdio: ['ignore', 'ignore', 'pipe'],
      env: { ...process.env, REDIS_URL: redis.url },
    });
    killAtEnd(t, child);
    let err = '';
    child.stderr.on('data', (chunk: Buffer) => (err += chunk.toString()));
    const [status] = (await once(child, 'close')) as [number | null];
    t.equal(status, 1, part);
    t.match(err, `(${part}.listen): the port is in use`);
    t.same(await redis.client.keys('*'), []);
  }
});

t.test('dev stops if its Redis prefix belongs to another registry', { skip: withoutRedis }, async (t) => {
  const redis = await startRedis(t);
  const records = { ...recordsOf(liveKey), 'mg:revision': 7 };
  for (const [name, record] of Object.entries(records)) await redis.client.set(name, JSON.stringify(record));
  const before = await redis.client.keys('*');
  const file = path.join(directory, 'strange.yaml');
  const text = await readFile(freePorts, 'utf8');
  await writeFile(file, `${text}keyStore: { kind: redis, redis: { url: '${redis.url}', prefix: 'mg:' } }\n`);
  await t.rejects(startDev(t, ['--config', file]), /the records mg:\* in Redis belong to another registry/);
  const after = await redis.client.keys('*');
  t.same(
    after.filter((name) => before.includes(name)).toSorted(),
    before.toSorted(),
    'the records of the other registry are unchanged',
  );
});
