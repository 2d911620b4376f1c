import { spawn } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import t from 'tap';
import { startRedis, withoutRedis } from '../adapters/redis-server.js';
import { countCommits } from '../database/committed-writes.js';
import { onEachDatabase } from '../database/each-database.js';
import { productCommand } from '../product-command.js';

const token = 'an-administrators-token-of-enough-characters';
const revocations = 20;
/** An idle holder prolongs its lease no more often. */
const leaseMilliseconds = 10_000 / 3;

interface Envelope {
  readonly data: { readonly id: string; readonly keyId: string; readonly status: string };
}

if (withoutRedis !== false) t.bailout(withoutRedis);

onEachDatabase('a revocation writes to the database twice: the change, and that it is projected', async (t, url) => {
  const redis = await startRedis(t);
  const directory = t.testdir({ 'token.txt': `${token}\n` });
  await writeFile(
    `${directory}/config.yaml`,
    `listen: { http: { host: 127.0.0.1, port: 0 }, https: null, management: null }
torExits: { enabled: false }
keyStore: { kind: redis, redis: { url: "${redis.url}" } }
registry: { listen: { port: 0 }, database: { url: "${url}" }, tokenFile: ${directory}/token.txt }
upstreams: { transactions: { url: "http://127.0.0.1:9" } }
routes: [{ path: /transactions, upstream: transactions, resource: transactions }]
`,
  );
  const child = spawn(...productCommand(['registry', '--create', '--config', `${directory}/config.yaml`]), {
    stdio: 'pipe',
  });
  t.teardown(() => child.kill('SIGKILL'));
  let log = '';
  const address = await new Promise<string>((resolve, reject) => {
    child.stderr.on('data', (chunk: Buffer) => {
      log += chunk.toString();
      const found = /"url":"(http:[^"]+)"/.exec(log)?.[1];
      if (found !== undefined) resolve(found);
    });
    child.once('exit', () => {
      reject(new Error(`the registry ended: ${log}`));
    });
  });
  const post = async (target: string, body: object = {}): Promise<Envelope> => {
    const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
    const response = await fetch(address + target, { method: 'POST', headers, body: JSON.stringify(body) });
    return (await response.json()) as Envelope;
  };

  const { id } = (await post('/merchants', { name: 'x' })).data;
  const keyIds: string[] = [];
  for (let key = 0; key < revocations; key += 1) {
    keyIds.push((await post(`/merchants/${id}/keys`, { environment: 'live' })).data.keyId);
  }
  const commits = await countCommits(t, url);
  const [before, begun] = [await commits(), performance.now()];
  for (const keyId of keyIds) t.match(await post(`/keys/${keyId}/revoke`), { data: { status: 'REVOKED' } });
  const milliseconds = performance.now() - begun;
  const made = (await commits()) - before;
  t.comment(`${made} for ${revocations} revocations in ${milliseconds.toFixed(0)} ms`);
  t.ok(made >= 2 * revocations, 'all of them are counted');
  t.ok(made <= 2 * revocations + Math.floor(milliseconds / leaseMilliseconds), `${made} for ${revocations}`);
});
