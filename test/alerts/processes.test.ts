import Database from 'libsql';
import net from 'node:net';
import tls from 'node:tls';
import path from 'node:path';
import t from 'tap';
import { until } from './rig.js';
import { figure, openScenes, options, stall, times, unknownKey } from './scenes.js';

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

  await caused(['GatewayOverloaded'], changed, () => stall(gateway, 1200, 4));
  await until('the gateway is no longer overloaded', async () => (await figure(gateway, 'gateway_overloaded')) === 0);
  await caused(['GatewaySlow'], changed, () => stall(gateway, 400, 5));
  await until('the gateway accepts requests again', async () => (await ask(gateway, { key })) === 200);
  await caused(['GatewaySlowDecisions'], changed, async () => {
    await redis.client.call('CLIENT', 'PAUSE', '400', 'ALL');
    await times(30, (index) => ask(gateway, { key: unknownKey(index), from: `203.0.113.${index}` }));
  });

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
    async () => (await figure(narrow, 'gateway_connections_refused_total{reason="connection_limit"}')) > 0,
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
    async () => (await figure(narrow, 'gateway_connections_evicted_total{reason="without_key"}')) > 0,
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
    async () => (await figure(hurried, 'gateway_connections_refused_total{reason="handshake_limit"}')) > 0,
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
      async () => (await figure(part, `${name}_ready`)) === 0,
    );
    database.exec('ROLLBACK');
    database.close();
    await until(`${name} is ready again`, async () => (await figure(part, `${name}_ready`)) === 1);
  }

  other.child.kill('SIGSTOP');
  await caused(
    ['RegistryChangesUnacknowledged'],
    { registry },
    () => admin(registry, 'PATCH', `/merchants/${merchant.id}`, { name: 'Another' }),
    async () =>
      (await figure(registry, 'registry_projected_revision')) >
      (await figure(registry, 'registry_acknowledged_revision')),
  );
  other.child.kill('SIGCONT');

  // A registry on another store works, and so do the gateways on the original store.
  await registry.kill();
  const elsewhere = await start('registry', { keyStore: { redis: { prefix: 'elsewhere:' } } });
  await caused(['RegistryMissesGateways'], { registry: elsewhere, 'gateway 1': gateway, 'gateway 2': other }, () =>
    until(
      'the roster no longer lists the gateways',
      async () => (await figure(elsewhere, 'registry_gateways')) === 0,
      60,
    ),
  );
  await caused(
    ['GatewayUsageDelayed'],
    changed,
    () => undefined,
    async () => (await figure(gateway, 'gateway_usage_delay_seconds')) > 10,
  );
  for (const one of gateways) t.equal(await figure(one, 'gateway_ready'), 1);

  await caused(['GatewayVanished'], { 'gateway 2': other }, () => other.kill());
  await caused(
    ['GatewayNotReady'],
    changed,
    () => void gateway.child.kill('SIGTERM'),
    async () => (await figure(gateway, 'gateway_ready')) === 0,
  );
  await caused(['GatewayAway', 'RegistryAway', 'ServicesAway'], { ...parts, registry: elsewhere }, () =>
    Promise.all([elsewhere, ...Object.values(parts)].map((part) => part.kill())),
  );
  scenes.evaluate();
});
