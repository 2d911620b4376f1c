import { registryAuthor } from '../../src/registry/events/author.js';
import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { RedisRecords } from '../../src/adapters/redis/gateway/redis-records.js';
import { lookupIdOf } from '../../src/gateway/api-key.js';
import { createKey, revokeKey } from '../../src/registry/keys/key-changes.js';
import { createMerchant } from '../../src/registry/merchants/repository.js';
import { keyStatus } from '../adapters/key-status.js';
import { freePort, type RedisServer, startRedis, type Teardown, withoutRedis } from '../adapters/redis-server.js';
import { onEachDatabase } from '../database/each-database.js';
import { liveKey, recordsOf } from '../edge/harness.js';
import { projectionFixture } from '../registry/projection-fixture.js';
import { differences } from '../registry/stored-state.js';
import { lastAccepted, Scene, statusesOf } from '../truth/scene.js';

// Almost all of the time these tests wait, each for servers of its own.
t.jobs = 3;

const maxStaleSeconds = 3;
const options = {
  topology: 'sentinel',
  gateways: 2,
  registries: 1,
  maxStaleSeconds,
  dist: path.resolve('dist'),
} as const;

// The sentinels and the registry had failed over to another server, but a gateway stayed connected to the former master,
// which still replied. The gateway accepted a revoked key, although the registry had reported the revocation as in force.
t.test(
  'split brain: a revocation waits until the gateway on the former master stops deciding',
  { skip: withoutRedis },
  async (t) => {
    const scene = await Scene.start(t, options);
    const { store, gateways, registries } = scene.deployment;
    const isolated = gateways[1];
    const [former] = await store.masters();
    if (isolated === undefined || former === undefined) throw new Error('there is no gateway, or no master');
    const [revoked, canary] = [await scene.createKey(), await scene.createKey()];
    await scene.enrolled();

    const others = store.reachable.filter(({ port }) => port !== former.port);
    former.peers?.set('cut');
    isolated.network.set('cut', others);
    for (const { network } of registries) network.set('cut', [former]);
    const splitAt = performance.now();
    const watches = gateways.map((gateway) => scene.watch(gateway, revoked));
    const good = scene.watch(isolated, canary);
    const first = await scene.revoke(revoked);
    t.notOk(first.isInForce);
    t.equal((await former.client.role())[0], 'master', 'the former master still has the role of master');
    const { answered: inForce, waitedFor } = await scene.revokeInForce(revoked);
    t.equal(waitedFor.length, 1, 'the isolated gateway was pending');
    t.comment(`in force ${Math.round(inForce - splitAt)} ms after the split`);
    const [ofOther, ofIsolated] = watches.map((watch) => lastAccepted(watch) ?? 0);
    t.ok((ofOther ?? Infinity) < inForce, 'the other gateway does not accept the key after that');
    t.ok((ofIsolated ?? Infinity) < inForce, 'the isolated gateway does not accept it either');
    const acceptedFor = (ofIsolated ?? Infinity) - splitAt;
    t.ok(acceptedFor < maxStaleSeconds * 1_000, `it accepts the key for ${Math.round(acceptedFor)} ms`);
    t.ok((ofIsolated ?? 0) > splitAt, 'it accepts the key within the staleness limit');
    await wait(2_000);
    t.equal((await scene.ask(isolated, revoked)).status, 503);
    t.equal((await former.client.role())[0], 'master', 'the former master still has the role of master');

    former.peers?.set('open');
    for (const { network } of [isolated, ...registries]) network.set('open');
    await store.settled();
    const since = performance.now();
    await scene.until(async () => (await scene.ask(isolated, canary)).status === 200, 'it accepts valid keys again');
    t.comment(`it accepts valid keys again after ${Math.round(performance.now() - since)} ms`);
    await wait(500);
    await Promise.all([good, ...watches].map((watch) => watch.stop()));
    for (const watch of watches) {
      const late = watch.seen.filter(({ sent, status }) => status === 200 && sent > inForce);
      t.same(late, [], 'the revoked key is not accepted again');
    }
    t.notOk(statusesOf(good).includes(401), 'no client with the valid key got 401');
  },
);

const lookupId = lookupIdOf(liveKey, null);
const maxStaleMilliseconds = 1_000;

const settings = {
  maxEntries: 10,
  maxAgeMilliseconds: 60_000,
  unknownMaxEntries: 10,
  unknownMaxAgeMilliseconds: 5_000,
};
const nowhere = { sentinels: null, masterName: '', cluster: null, username: null, password: null, ca: null };

/** The records of a gateway, and the status of the key in them. */
function open(t: Teardown, { url }: RedisServer) {
  const records = new RedisRecords({
    address: { ...nowhere, url, commandTimeoutMilliseconds: 1_000 },
    prefix: 'mg:',
    cache: { ...settings, maxStaleMilliseconds },
    identity: { instanceId: 'g', environment: 'live', host: 'test', startedAt: '2026-01-01T00:00:00.000Z' },
    clock: { now: () => Date.now() },
    ...{ onMalformed: () => undefined, onLost: () => undefined, onFound: () => undefined },
  });
  t.teardown(() => records.close());
  return { records, status: () => keyStatus(records, lookupId) };
}

async function startSeeded(t: Teardown): Promise<RedisServer> {
  const server = await startRedis(t);
  for (const [name, record] of Object.entries(recordsOf(liveKey))) {
    await server.client.set(name, JSON.stringify(record));
  }
  return server;
}

async function until(holds: () => Promise<boolean>, what: string): Promise<void> {
  for (const end = Date.now() + 15_000; !(await holds());) {
    if (Date.now() > end) throw new Error(`never: ${what}`);
    await wait(20);
  }
}

type Change = (server: RedisServer) => Promise<unknown>;

const replaced: Record<string, [refuse: Change, allow: Change]> = {
  'was demoted': [
    async ({ client }) => client.replicaof('127.0.0.1', String(await freePort())),
    ({ client }) => client.replicaof('NO', 'ONE'),
  ],
  'was cut off from its replicas': [
    ({ client }) => client.config('SET', 'min-replicas-to-write', '1'),
    ({ client }) => client.config('SET', 'min-replicas-to-write', '0'),
  ],
};

// On such a server the gateway's acknowledgement had expired, so a revocation on the new master reported nothing as
// pending. The gateway continued to query its server forever.
for (const [what, [refuse, allow]] of Object.entries(replaced)) {
  t.test(
    `split brain: a server that ${what} is trusted for no longer than the staleness limit`,
    { skip: withoutRedis },
    async (t) => {
      const server = await startSeeded(t);
      const { records, status } = open(t, server);
      await until(async () => (await status()) === 'ACTIVE (cache)', 'ready');
      await refuse(server);
      await wait(maxStaleMilliseconds + 2_000);
      for (let count = 0; count < 20; count += 1) {
        t.equal(await status(), 'KeyStoreUnavailable');
        await wait(100);
      }
      t.match(
        records.unavailableReason(),
        'Redis rejects the acknowledgements of this gateway (READONLY or NOREPLICAS)',
      );
      t.equal(
        await server.client.exists('mg:gateway:g', `mg:key:${lookupId}`),
        2,
        'the acknowledgement exists all the time, so the registry waits for this gateway',
      );
      await allow(server);
      await until(async () => (await status()) === 'ACTIVE (cache)', 'the gateway recovers by itself');
      t.equal(records.unavailableReason(), null);
    },
  );
}

t.test('split brain: a gateway that starts on a demoted server is unavailable', { skip: withoutRedis }, async (t) => {
  const server = await startSeeded(t);
  await server.client.replicaof('127.0.0.1', String(await freePort()));
  const { records, status } = open(t, server);
  await until(() => Promise.resolve(records.unavailableReason() !== 'Redis does not reply'), 'the server was queried');
  for (let count = 0; count < 20; count += 1) {
    t.equal(await status(), 'KeyStoreUnavailable');
    await wait(20);
  }
});

const full: Record<string, [refuse: Change, allow: Change]> = {
  'is out of memory': [
    ({ client }) => client.config('SET', 'maxmemory', '1'),
    ({ client }) => client.config('SET', 'maxmemory', '0'),
  ],
  'cannot save': [
    async ({ client }) => {
      const [, folder = ''] = await client.config('GET', 'dir');
      await mkdir(`${folder}/dump.rdb`); // Redis cannot replace a directory with its file
      await client.config('SET', 'save', '3600 1');
      await client.bgsave();
    },
    ({ client }) => client.config('SET', 'save', ''),
  ],
};

for (const [what, [refuse, allow]] of Object.entries(full)) {
  t.test(`a server that ${what} rejects the registry too, and is still queried`, { skip: withoutRedis }, async (t) => {
    const server = await startSeeded(t);
    const { records, status } = open(t, server);
    await until(async () => (await status()) === 'ACTIVE (cache)', 'ready');
    await refuse(server);
    await until(async () => (await server.client.exists('mg:gateway:g')) === 0, 'the acknowledgement has expired');
    await t.rejects(server.client.set('mg:revision', '2'), 'nothing can be revoked');
    t.equal(await status(), 'ACTIVE (store)');
    t.equal(records.unavailableReason(), null);
    await allow(server);
    await until(async () => (await status()) === 'ACTIVE (cache)', 'the record is cached again');
  });
}

// A registry without Redis renewed its lease with each attempt, so the other registry never projected a revocation.
onEachDatabase('split brain: of two registries, the one that reaches Redis projects', async (t, url) => {
  const { context, database, projection, store, time } = await projectionFixture(t, url);
  const [disconnected, other] = [projection('lost'), projection('other')];
  const { id } = await createMerchant(context, registryAuthor, { name: 'x' });
  const { keyId } = await createKey(context, registryAuthor, id, { environment: 'live' });
  await disconnected.run();
  await revokeKey(context, registryAuthor, keyId);
  // Its pauses after failures become as long as a lease. It runs first each time.
  for (let attempt = 0; attempt < 3; attempt += 1) {
    store.fails = () => 'before';
    await t.rejects(disconnected.run(), /the store is away/);
    store.fails = () => null;
    await other.run();
    time.advance(10_000);
  }
  t.same(await differences(database, store), []);
});
