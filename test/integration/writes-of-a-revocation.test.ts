import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { withoutRedis } from '../adapters/redis-server.js';
import { countCommits } from '../database/committed-writes.js';
import { onEachDatabase } from '../database/each-database.js';
import { startDeployment } from '../deployment/deployment.js';

const revocations = 20;
/**
 * Age of the lease at which a registry without pending changes renews it. The lease is the right of one registry to
 * write to Redis.
 */
const idleMilliseconds = 1_000;
const quietMilliseconds = 1_000;
const secondRenewalMilliseconds = 100;

if (withoutRedis !== false) t.bailout(withoutRedis);

/**
 * Waits until the idle lease holder has just renewed its lease, and all earlier changes are written.
 * @returns a time before the renewal, because on a busy machine this function may notice the renewal late
 */
async function untilProlonged(commits: () => Promise<number>): Promise<number> {
  let [count, quietSince] = [await commits(), performance.now()];
  for (let lastReadAt = quietSince; ;) {
    await wait(20);
    const readAt = performance.now();
    const now = await commits();
    if (now !== count) {
      if (performance.now() - quietSince > quietMilliseconds) {
        // Two parts of the registry share the lease: the list of gateways, and the projection, which writes records to
        // Redis. If both read the lease before the renewal, both renew it.
        await wait(secondRenewalMilliseconds);
        return lastReadAt;
      }
      [count, quietSince] = [now, performance.now()];
    }
    lastReadAt = readAt;
  }
}

onEachDatabase('a revocation takes two database writes: the change, and its projection', async (t, url) => {
  const { registry } = await startDeployment(t, { databaseUrl: url });
  const post = (target: string, body: object = {}) =>
    registry.call<{ readonly id: string; readonly keyId: string }>('POST', target, body);

  const { id } = (await post('/merchants', { name: 'x' })).data;
  const commits = await countCommits(t, url);
  // On a busy machine a renewal of the lease can come late, as one more write. The projection can also write two late
  // changes in one write. So a round counts only if neither has happened.
  let further = Infinity;
  for (let round = 0; round < 5 && further > 0; round += 1) {
    const keyIds: string[] = [];
    for (let key = 0; key < revocations; key += 1) {
      keyIds.push((await post(`/merchants/${id}/keys`, { environment: 'live' })).data.keyId);
    }
    const prolonged = await untilProlonged(commits);
    const before = await commits();
    for (const keyId of keyIds) t.match(await post(`/keys/${keyId}/revoke`), { data: { status: 'REVOKED' } });
    const milliseconds = performance.now() - prolonged;
    const made = (await commits()) - before;
    t.comment(`${made} commits for ${revocations} revocations in ${milliseconds.toFixed(0)} ms`);
    const isEachProjected = made >= 2 * revocations;
    further = isEachProjected ? made - 2 * revocations - Math.floor(milliseconds / idleMilliseconds) : Infinity;
  }
  t.ok(further <= 0, `${further} commits more than two for each revocation and one for each renewal`);
});
