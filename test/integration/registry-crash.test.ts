import t from 'tap';
import { withoutRedis } from '../adapters/redis-server.js';
import { onEachDatabase } from '../database/each-database.js';
import { startDeployment } from '../deployment/deployment.js';

if (withoutRedis !== false) t.bailout(withoutRedis);

// Regression: the next process waited ten seconds for the lease to expire, and revocations returned 202.
onEachDatabase('the first revocation after a crash of the registry reaches Redis at once', async (t, url) => {
  const deployment = await startDeployment(t, { databaseUrl: url, pepper: true });
  const { id } = (await deployment.admin('POST', '/merchants', { name: 'x' })).data;
  for (let crash = 0; crash < 3; crash += 1) {
    const { data } = await deployment.admin('POST', `/merchants/${String(id)}/keys`, { environment: 'live' });
    await deployment.restartRegistry();
    t.match(await deployment.registry.call('POST', `/keys/${String(data.keyId)}/revoke`, {}), {
      status: 200,
      data: { status: 'REVOKED' },
    });
  }
});
