import Database from 'libsql';
import net from 'node:net';
import tls from 'node:tls';
import path from 'node:path';
import t from 'tap';
import { until } from './rig.js';
import { metricValue, openScenes, options, stall, times, unknownKey } from './scenes.js';

/** Runs a statement; false if another process holds the write lock. */
function hasRun(database: Database.Database, statement: string): boolean {
  try {
    database.exec(statement);
    return true;
  } catch (error) {
    if ((error as { code?: string }).code !== 'SQLITE_BUSY') throw error;
    return false;
  }
}

t.test('alerts on processes fire for their causes, and never in a quiet hour', options, async (t) => {
  const scenes = await openScenes(t, 'processes');
  const { admin, ask, caused, folder, gateways, key, merchant, parts, redis, registry, services, start } = scenes;
  const [gateway, other] = gateways;
  const changed = { 'gateway 1': gateway };

  // A gateway is overloaded if the mean event-loop delay within a second is high. Timers around a pause can lower that
  // mean, so the pauses are repeated.
  const isOverloaded = async (): Promise<boolean> => (await metricValue(gateway, 'gateway_overloaded')) === 1;
  await caused(
    ['GatewayOverloaded'],
    changed,
    () => undefined,
    async () => (await isOverloaded()) || (await stall(gateway, 2500, 2), false),
  );
  await until('the gateway is no longer overloaded', async () => !(await isOverloaded()));
  // Pauses the gateway many times. The metric is a percentile, so on a busy machine one pause would not show among many
  // ordinary delays.
  await caused(['GatewaySlow'], changed, () => stall(gateway, 400, 12));
  await until('the gateway accepts requests again', async () => (await ask(gateway, { key })) === 200);
  const [decisions, quick] = ['count', 'bucket{le="0.1"}'].map((end) => `gateway_decision_duration_seconds_${end}`);
  const slowDecisions = async (): Promise<number> =>
    (await metricValue(gateway, decisions ?? '')) - (await metricValue(gateway, quick ?? ''));
  const slowBefore = await slowDecisions();
  let asked = 0;
  await caused(['GatewaySlowDecisions'], changed, () =>
    // On a busy machine the pause can be over before the requests arrive.
    until('a decision takes longer than 100 ms', async () => {
      await redis.client.call('CLIENT', 'PAUSE', '400', 'ALL');
      await times(30, (index) => ask(gateway, { key: unknownKey(asked + index), from: `203.0.113.${index}` }));
      asked += 30;
      return (await slowDecisions()) > slowBefore;
    }),
  );

  const narrow = await start('gateway', { limits: { connections: 2 } });
  await caused(
    ['GatewayConnectionsFull'],
    { 'gateway 1': narrow },
    () => {
      for (let count = 0; count < 6; count += 1) {
        const socket = tls.connect({ port: narrow.ports.https ?? 0, rejectUnauthorized: false });
        socket.on('error', () => undefined);
        t.teardown(() => socket.destroy());
      }
    },
    async () => (await metricValue(narrow, 'gateway_connections_refused_total{reason="connection_limit"}')) > 0,
  );
  await caused(
    ['GatewayConnectionsEvicted'],
    { 'gateway 1': narrow },
    () => {
      for (let count = 0; count < 6; count += 1) {
        const socket = net.connect({ port: narrow.ports.http ?? 0, host: '127.0.0.1', localAddress: '127.0.0.2' });
        socket.on('error', () => undefined);
        t.teardown(() => socket.destroy());
      }
    },
    async () => (await metricValue(narrow, 'gateway_connections_evicted_total{reason="without_key"}')) > 0,
  );
  await narrow.kill();
  const hurried = await start('gateway', { limits: { handshakesPerSecond: 1, handshakeBurst: 1 }, trustedProxies: [] });
  await caused(
    ['GatewayHandshakesRefused'],
    { 'gateway 1': hurried },
    () => {
      for (let count = 0; count < 6; count += 1) {
        const socket = tls.connect({ port: hurried.ports.https ?? 0, rejectUnauthorized: false });
        socket.on('error', () => undefined);
        t.teardown(() => socket.destroy());
      }
    },
    async () => (await metricValue(hurried, 'gateway_connections_refused_total{reason="handshake_limit"}')) > 0,
  );
  await hurried.kill();

  for (const [alert, part, name] of [
    ['RegistryNotReady', registry, 'registry'],
    ['ServicesNotReady', services, 'services'],
  ] as const) {
    const database = new Database(path.join(folder, `${name}.db`));
    await caused(
      [alert],
      { [name]: part },
      () => until('the write lock is held', () => hasRun(database, 'BEGIN IMMEDIATE')),
      async () => (await metricValue(part, `${name}_ready`)) === 0,
    );
    database.exec('ROLLBACK');
    database.close();
    await until(`${name} is ready again`, async () => (await metricValue(part, `${name}_ready`)) === 1);
  }

  let changes = 0;
  const changeUnnoticed = async (): Promise<void> => {
    other.child.kill('SIGCONT');
    await until('both gateways are known', async () => (await metricValue(registry, 'registry_gateways')) === 2);
    other.child.kill('SIGSTOP');
    changes += 1;
    await admin(registry, 'PATCH', `/merchants/${merchant.id}`, { name: `Another ${changes}` });
  };
  const revision = (state: string): Promise<number> => metricValue(registry, `registry_${state}_revision`);
  const isUnacknowledged = async (): Promise<boolean> =>
    (await revision('projected')) > (await revision('acknowledged'));
  // The registry waits only a few seconds for the acknowledgement of a silent gateway. On a busy machine, the test can
  // read the metrics after this wait has ended. So it repeats the change.
  await caused(
    ['RegistryChangesUnacknowledged'],
    { registry },
    changeUnnoticed,
    async () => (await isUnacknowledged()) || (await changeUnnoticed(), false),
  );
  other.child.kill('SIGCONT');

  // This registry uses another key prefix in Redis than the gateways. Both work, but the registry sees no gateway.
  await registry.kill();
  const elsewhere = await start('registry', { keyStore: { redis: { prefix: 'elsewhere:' } } });
  await caused(['RegistryMissesGateways'], { registry: elsewhere, 'gateway 1': gateway, 'gateway 2': other }, () =>
    until(
      'the roster no longer lists the gateways',
      async () => (await metricValue(elsewhere, 'registry_gateways')) === 0,
      60,
    ),
  );
  await caused(
    ['GatewayUsageDelayed'],
    changed,
    () => undefined,
    async () => (await metricValue(gateway, 'gateway_usage_delay_seconds')) > 10,
  );
  for (const one of gateways) t.equal(await metricValue(one, 'gateway_ready'), 1);

  await caused(['GatewayVanished'], { 'gateway 2': other }, () => other.kill());
  await caused(
    ['GatewayNotReady'],
    changed,
    () => void gateway.child.kill('SIGTERM'),
    async () => (await metricValue(gateway, 'gateway_ready')) === 0,
  );
  await caused(['GatewayAway', 'RegistryAway', 'ServicesAway'], { ...parts, registry: elsewhere }, () =>
    Promise.all([elsewhere, ...Object.values(parts)].map((part) => part.kill())),
  );
  scenes.evaluate();
});
