import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import t from 'tap';
import { startRedis, withoutRedis } from '../adapters/redis-server.js';
import { onEachDatabase } from '../database/each-database.js';
import { killAtEnd, productCommand } from '../product-command.js';

const token = 'an-administrators-token-of-enough-characters';

interface Envelope {
  readonly data: { readonly id: string; readonly keyId: string };
}

if (withoutRedis !== false) t.bailout(withoutRedis);

// Regression: the next process waited ten seconds for the lease to expire, and revocations returned 202.
onEachDatabase('the first revocation after a crash of the registry reaches Redis at once', async (t, url) => {
  const redis = await startRedis(t);
  const directory = t.testdir({ 'token.txt': `${token}\n`, 'pepper.txt': 'a pepper of the test, long enough\n' });
  await writeFile(
    `${directory}/config.yaml`,
    `listen: { http: { host: 127.0.0.1, port: 0 }, https: null, management: null }
torExits: { enabled: false }
keys: { pepperFile: ${directory}/pepper.txt }
keyStore: { kind: redis, redis: { url: "${redis.url}" } }
registry: { listen: { port: 0 }, database: { url: "${url}" }, tokenFile: ${directory}/token.txt }
upstreams: { transactions: { url: "http://127.0.0.1:9" } }
routes: [{ path: /transactions, upstream: transactions, resource: transactions }]
`,
  );
  async function start() {
    const child = spawn(...productCommand(['registry', '--create', '--config', `${directory}/config.yaml`]), {
      stdio: 'pipe',
    });
    killAtEnd(t, child);
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
    const post = async (target: string, body: object = {}): Promise<{ status: number } & Envelope> => {
      const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
      const response = await fetch(address + target, { method: 'POST', headers, body: JSON.stringify(body) });
      return { status: response.status, ...((await response.json()) as Envelope) };
    };
    return { child, post };
  }

  let registry = await start();
  const { id } = (await registry.post('/merchants', { name: 'x' })).data;
  for (let crash = 0; crash < 3; crash += 1) {
    const { data } = await registry.post(`/merchants/${id}/keys`, { environment: 'live' });
    registry.child.kill('SIGKILL');
    await once(registry.child, 'exit');
    registry = await start();
    t.match(await registry.post(`/keys/${data.keyId}/revoke`), { status: 200, data: { status: 'REVOKED' } });
  }
});
