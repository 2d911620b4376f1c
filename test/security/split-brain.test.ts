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

const maxStaleSeconds = 3;
const options = {
  topology: 'sentinel',
  gateways: 2,
  registries: 1,
  maxStaleSeconds,
  dist: path.resolve('dist'),
} as const;

// Sentinels and registry had gone over to another server, and a gateway was left with the former one, which answered on: the gateway
// accepted a revoked key for as long as it did, and the registry had called the revocation in force.
t.test(
  'split brain: a revocation waits until the gateway on the former master stops deciding',
  { skip: withoutRedis },
  async (t) => {
    const scene = await Scene.start(t, options);
    const { store, gateways, registries } = scene.deployment;
    const left = gateways[1];
    const [former] = await store.masters();
    if (left === undefined || former === undefined) throw new Error('there is no gateway, or no master');
    const [revoked, canary] = [await scene.createKey(), await scene.createKey()];
    await scene.enrolled();

    const others = store.reachable.filter(({ port }) => port !== former.port);
    former.peers?.set('cut');
    left.network.set('cut', others);
    for (const { network } of registries) network.set('cut', [former]);
    const alone = performance.now();
    const watches = gateways.map((gateway) => scene.watch(gateway, revoked));
    const good = scene.watch(left, canary);
    const first = await scene.revoke(revoked);
    t.notOk(first.isInForce);
    t.equal((await former.client.role())[0], 'master', 'the former master answers, as one');
    const { answered: inForce, waitedFor } = await scene.revokeInForce(revoked);
    t.equal(waitedFor.length, 1, 'the gateway that is left was pending');
    t.comment(`in force ${Math.round(inForce - alone)} ms after the split`);
    const [near, far] = watches.map((watch) => lastAccepted(watch) ?? 0);
    t.ok((near ?? Infinity) < inForce, 'no other gateway accepts it after that');
    t.ok((far ?? Infinity) < inForce, 'nor does this one');
    t.ok((far ?? Infinity) - alone < maxStaleSeconds * 1_000, `it accepts it for ${Math.round((far ?? 0) - alone)} ms`);
    t.ok((far ?? 0) > alone, 'while it may');
    await wait(2_000);
    t.equal((await scene.ask(left, revoked)).status, 503);
    t.equal((await former.client.role())[0], 'master', 'the former master answers, as one');

    former.peers?.set('open');
    for (const { network } of [left, ...registries]) network.set('open');
    await store.settled();
    const since = performance.now();
    await scene.until(async () => (await scene.ask(left, canary)).status === 200, 'it decides again');
    t.comment(`it decides again after ${Math.round(performance.now() - since)} ms`);
    await wait(500);
    await Promise.all([good, ...watches].map((watch) => watch.stop()));
    for (const watch of watches) {
      const late = watch.seen.filter(({ sent, status }) => status === 200 && sent > inForce);
      t.same(late, [], 'the revoked key is not accepted again');
    }
    t.notOk(statusesOf(good).includes(401), 'and none was told that a good key is bad');
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

/** The records of a gateway, and what is said of a key by them. */
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

// The acknowledgement had expired there, so a revocation elsewhere was answered with nothing pending; and the gateway went on
// asking the one that it was connected to, without end.
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
      t.match(records.unavailableReason(), 'takes no acknowledgements');
      t.equal(await server.client.exists('mg:gateway:g', `mg:key:${lookupId}`), 2, 'all the while it was waited for');
      await allow(server);
      await until(async () => (await status()) === 'ACTIVE (cache)', 'back by itself');
      t.equal(records.unavailableReason(), null);
    },
  );
}

t.test('split brain: a gateway that starts on a demoted server is unavailable', { skip: withoutRedis }, async (t) => {
  const server = await startSeeded(t);
  await server.client.replicaof('127.0.0.1', String(await freePort()));
  const { records, status } = open(t, server);
  await until(() => Promise.resolve(records.unavailableReason() !== 'Redis does not answer'), 'asked');
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
      await mkdir(`${folder}/dump.rdb`); // a file cannot take its place
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
    await until(async () => (await status()) === 'ACTIVE (cache)', 'held again');
  });
}

// A registry that had lost Redis prolonged its lease with each attempt, so a revocation at the other one stayed undone.
onEachDatabase('split brain: of two registries, the one that reaches Redis projects', async (t, url) => {
  const { context, database, projection, store, time } = await projectionFixture(t, url);
  const [lost, other] = [projection('lost'), projection('other')];
  const { id } = await createMerchant(context, 'test', { name: 'x' });
  const { keyId } = await createKey(context, 'test', id, { environment: 'live' });
  await lost.run();
  await revokeKey(context, 'test', keyId);
  // Its pauses after failures become as long as a lease, and it comes first each time.
  for (let attempt = 0; attempt < 3; attempt += 1) {
    store.fails = () => 'before';
    await t.rejects(lost.run(), /the store is away/);
    store.fails = () => null;
    await other.run();
    time.advance(10_000);
  }
  t.same(await differences(database, store), []);
});
