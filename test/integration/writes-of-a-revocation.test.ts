import { spawn } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { startRedis, withoutRedis } from '../adapters/redis-server.js';
import { countCommits } from '../database/committed-writes.js';
import { onEachDatabase } from '../database/each-database.js';
import { killAtEnd, productCommand } from '../product-command.js';

const token = 'an-administrators-token-of-enough-characters';
const revocations = 20;
/** Minimum time between the last write of the lease holder and a renewal of its idle lease. */
const idleMilliseconds = 1_000;
const quietMilliseconds = 1_000;
const secondRenewalMilliseconds = 100;

interface Envelope {
  readonly data: { readonly id: string; readonly keyId: string; readonly status: string };
}

if (withoutRedis !== false) t.bailout(withoutRedis);

/**
 * Waits until an idle holder has just renewed its lease and all earlier changes are written.
 * @returns a time before the renewal; a busy machine may notice the write late
 */
async function untilProlonged(commits: () => Promise<number>): Promise<number> {
  let [count, quietSince] = [await commits(), performance.now()];
  for (let looked = quietSince; ;) {
    await wait(20);
    const looking = performance.now();
    const now = await commits();
    if (now !== count) {
      if (performance.now() - quietSince > quietMilliseconds) {
        // Roster and projection may both have found the old lease, and renew it at once.
        await wait(secondRenewalMilliseconds);
        return looked;
      }
      [count, quietSince] = [now, performance.now()];
    }
    looked = looking;
  }
}

onEachDatabase('a revocation takes two database writes: the change, and its projection', async (t, url) => {
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
  const prolonged = await untilProlonged(commits);
  const before = await commits();
  for (const keyId of keyIds) t.match(await post(`/keys/${keyId}/revoke`), { data: { status: 'REVOKED' } });
  const milliseconds = performance.now() - prolonged;
  const made = (await commits()) - before;
  t.comment(`${made} commits for ${revocations} revocations in ${milliseconds.toFixed(0)} ms`);
  t.ok(made >= 2 * revocations, 'every commit is counted');
  t.ok(
    made <= 2 * revocations + Math.floor(milliseconds / idleMilliseconds),
    `${made} commits for ${revocations} revocations`,
  );
});
