import t from 'tap';
import { withoutRedis } from '../adapters/redis-server.js';
import { onEachDatabase } from '../database/each-database.js';
import { startDeployment } from '../deployment/deployment.js';

if (withoutRedis !== false) t.bailout(withoutRedis);

// Regression: after a crash, the next registry process waited ten seconds until the lease (the right to write to Redis)
// of the crashed process expired. Meanwhile revocations returned 202.
onEachDatabase('the first revocation after a crash of the registry reaches Redis at once', async (t, url) => {
  const deployment = await startDeployment(t, { databaseUrl: url, pepper: true });
  const { id } = (await deployment.admin('POST', '/merchants', { name: 'x' })).data;
  const times: number[] = [];
  for (let crash = 0; crash < 3; crash += 1) {
    const { data } = await deployment.admin('POST', `/merchants/${String(id)}/keys`, { environment: 'live' });
    await deployment.restartRegistry();
    const revoke = () => deployment.registry.call('POST', `/keys/${String(data.keyId)}/revoke`, {});
    const begun = performance.now();
    let revoked = await revoke();
    // On a busy machine a revocation can take longer than the two seconds for which its response waits.
    while (revoked.status === 202 && performance.now() - begun < 60_000) revoked = await revoke();
    times.push(performance.now() - begun);
    t.match(revoked, { status: 200, data: { status: 'REVOKED' } });
  }
  // A stall of some seconds can delay one of the revocations.
  const [, second = Infinity, longest = Infinity] = times.toSorted((one, other) => one - other);
  t.ok(second < 3_000 && longest < 8_000, `${times.map(Math.round).join(', ')} ms`);
});
