import { once } from 'node:events';
import t from 'tap';
import { until } from './rig.js';
import { metricValue, openScenes, options, times } from './scenes.js';

t.test('alerts on a Redis outage fire for it, and never in a quiet hour', options, async (t) => {
  const scenes = await openScenes(t, 'outage');
  const { admin, ask, caused, gateways, key, merchant, redis, registry, start } = scenes;
  const [gateway] = gateways;
  const changed = { 'gateway 1': gateway };
  const count = (series: string) => metricValue(gateway, series);
  const servesWithoutRedis = async (): Promise<boolean> =>
    (await count('gateway_key_lookup_duration_seconds_count{source="stale"}')) > 0 &&
    (await count('gateway_rate_limit_counts_total{how="alone"}')) > 0;

  await caused(
    ['GatewayServesStaleRecords', 'GatewayCountsAlone', 'RegistryCannotProject', 'RegistryChangesWaiting'],
    { ...changed, registry },
    async () => {
      await redis.kill();
      // Both run at the same time, because the gateway serves stale records for only four seconds, and the change waits
      // two seconds for Redis.
      await Promise.all([
        admin(registry, 'PATCH', `/merchants/${merchant.id}`, { name: 'Another' }),
        until('the gateway serves stale records and counts alone', async () => {
          await times(5, () => ask(gateway, { key }));
          return servesWithoutRedis();
        }),
      ]);
    },
    async () => (await servesWithoutRedis()) && (await metricValue(registry, 'registry_projection_failing')) === 1,
  );
  await caused(
    ['GatewayKeyStoreUnavailable'],
    changed,
    () => undefined,
    async () => (await count('gateway_key_store_available')) === 0,
  );
  // A registry that ran while Redis lost its records still knows every gateway. A registry that starts later does not.
  const ended = once(registry.child, 'exit');
  registry.child.kill('SIGTERM');
  await ended;
  await redis.restart();
  const later = await start('registry');
  await caused(
    ['RegistryRosterIncomplete'],
    { registry: later },
    () => undefined,
    async () => (await metricValue(later, 'registry_roster_complete')) === 0,
  );
  await until('a gateway accepts requests again', async () => (await ask(gateway, { key })) === 200);
  scenes.evaluate();
});
