import { once } from 'node:events';
import net from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { openRecordsStore } from '../../src/adapters/redis/registry/open-records-store.js';
import type { OpenedRecordsStore } from '../../src/adapters/redis/registry/open-records-store.js';
import { RedisRate } from '../../src/adapters/redis/redis-rate.js';
import { RedisRecords } from '../../src/adapters/redis/gateway/redis-records.js';
import { seededRecords } from './key-store-contract.js';
import { freePort, startRedis, until, withoutRedis } from './redis-server.js';
import type { Teardown } from './redis-server.js';

/** A relay in place of a DNS name: connects each new client to the port `target`. Open connections stay open. */
async function startName(t: Teardown, port: number) {
  const name = { url: '', target: port, opened: 0 };
  const sockets = new Set<Socket>();
  const server = net.createServer((near) => {
    name.opened += 1;
    const far = net.connect(name.target, '127.0.0.1');
    for (const [one, other] of [
      [near, far],
      [far, near],
    ] as const) {
      sockets.add(one);
      one.on('error', () => undefined).on('close', () => other.destroy());
      one.pipe(other);
    }
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  t.teardown(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  name.url = `redis://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return name;
}

const nowhere = { sentinels: null, masterName: '', cluster: null, username: null, password: null, ca: null };
const untold = { onMalformed: () => undefined, onLost: () => undefined, onFound: () => undefined };
const cache = {
  ...{ maxEntries: 10, maxAgeMilliseconds: 60_000, unknownMaxEntries: 10, unknownMaxAgeMilliseconds: 5_000 },
  maxStaleMilliseconds: 1_000,
};
const details = { environment: 'live', host: 'test', startedAt: '2026-01-01T00:00:00.000Z' } as const;

async function publish(store: OpenedRecordsStore, revision: number): Promise<void> {
  await store.begin();
  await store.publish({ revision, change: 'c' });
}

for (const isLinked of [true, false]) {
  t.test(
    `gateway, registry and rate leave a demoted master${isLinked ? '' : ' without a replication link'}`,
    { skip: withoutRedis },
    async (t) => {
      const [before, after] = await Promise.all([startRedis(t), startRedis(t)]);
      for (const { client } of [before, after]) {
        for (const [name, value] of Object.entries(seededRecords)) await client.set(name, JSON.stringify(value));
      }
      const name = await startName(t, before.port);
      const address = { ...nowhere, url: name.url, commandTimeoutMilliseconds: 1_000 };
      const identity = { instanceId: 'g', ...details };
      const clock = { now: () => Date.now() };
      const records = new RedisRecords({ address, prefix: 'mg:', cache, identity, clock, ...untold });
      const registry = openRecordsStore(address, 'mg:', untold);
      const counts = { environment: 'live', requestsPerSecond: 100, burst: 100, waitMilliseconds: 1_000 } as const;
      const rate = new RedisRate({ address, prefix: 'mg:', ...counts, ...untold });
      t.teardown(() => Promise.all([records.close(), registry.close(), rate.close()]));
      const live = async (): Promise<string[]> => {
        const seen = await registry.gateways([]).catch(() => null);
        return (seen?.gateways ?? []).map(({ instanceId }) => instanceId).sort();
      };
      await until(async () => (await live()).join() === 'g', 'the registry knows the gateway');
      await until(async () => (await rate.take('m_1')) !== null, 'counted in Redis');

      await before.client.replicaof('127.0.0.1', String(isLinked ? after.port : await freePort()));
      name.target = after.port;
      const isWritten = () =>
        publish(registry, 7).then(
          () => true,
          () => false,
        );
      await until(isWritten, 'the registry writes');
      t.equal(await after.client.get('mg:revision'), '7');
      const acknowledged = async (): Promise<unknown> => {
        const text = await after.client.get('mg:gateway:g');
        return text === null ? null : (JSON.parse(text) as { revision: number }).revision;
      };
      await until(async () => (await acknowledged()) === 7, 'the gateway acknowledges there');
      await until(async () => (await rate.take('m_1')) !== null, 'counted in Redis again');
      await after.client.set('mg:gateway:h', JSON.stringify({ ...details, instanceId: 'h', revision: 7 }));
      const hasBoth = async (): Promise<boolean> => (await live()).join() === 'g,h';
      await until(hasBoth, 'the registry waits for a gateway that has arrived there');
    },
  );
}

t.test(
  'a server that refuses writes under an unchanged name is reconnected to once a second',
  { skip: withoutRedis },
  async (t) => {
    const server = await startRedis(t);
    const name = await startName(t, server.port);
    const registry = openRecordsStore({ ...nowhere, url: name.url, commandTimeoutMilliseconds: 1_000 }, 'mg:', untold);
    t.teardown(() => registry.close());
    await until(
      () =>
        publish(registry, 1).then(
          () => true,
          () => false,
        ),
      'connected',
    );
    await server.client.replicaof('127.0.0.1', String(await freePort()));
    const [opened, began] = [name.opened, performance.now()];
    while (performance.now() - began < 2_500) await publish(registry, 2).catch(() => wait(1));
    const seconds = (performance.now() - began) / 1_000;
    t.ok(name.opened > opened, 'reconnected');
    t.ok(name.opened - opened <= 1 + seconds, `${name.opened - opened} connections in ${seconds} s`);
  },
);
