import { registryAuthor } from '../../src/registry/events/author.js';
import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import type { RedisAddress } from '../../src/adapters/redis/connection.js';
import { RedisRecords } from '../../src/adapters/redis/gateway/redis-records.js';
import { lookupIdOf } from '../../src/gateway/api-key.js';
import { createKey, revokeKey } from '../../src/registry/keys/key-changes.js';
import { createMerchant } from '../../src/registry/merchants/repository.js';
import { startEnrolling } from '../adapters/enrolling.js';
import { keyStatus } from '../adapters/key-status.js';
import { freePort, startRedis, until, withoutRedis } from '../adapters/redis-server.js';
import type { RedisServer, Teardown } from '../adapters/redis-server.js';
import { onEachDatabase } from '../database/each-database.js';
import { liveKey, recordsOf } from '../edge/harness.js';
import { projectionFixture } from '../registry/projection-fixture.js';
import { differences } from '../registry/stored-state.js';
import { lastAccepted, Scene, statusesOf } from '../truth/scene.js';

// Each test has its own servers, and mostly waits for them. So three tests run at the same time.
t.jobs = 3;

const maxStaleSeconds = 3;
const options = {
  topology: 'sentinel',
  gateways: 2,
  registries: 1,
  maxStaleSeconds,
  dist: path.resolve('dist'),
} as const;

// The sentinels and the registry have failed over to another server, but a gateway stays connected to the former
// master, which still replies. Regression: the gateway accepted a revoked key, although the registry had reported the
// revocation as in force.
t.test(
  'split brain: a revocation waits until the gateway on the former master stops deciding',
  { skip: withoutRedis },
  async (t) => {
    const scene = await Scene.start(t, options);
    const { store, gateways, registries } = scene.deployment;
    const isolated = gateways[1];
    const [former] = await scene.masters();
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
    const { received: inForce, waitedFor } = await scene.revokeInForce(revoked);
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
function open(t: Teardown, { url }: RedisServer, part: Partial<RedisAddress> = {}) {
  const records = new RedisRecords({
    address: { ...nowhere, url, commandTimeoutMilliseconds: 1_000, ...part },
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

/** The status once the store is available: on a busy machine a heartbeat can be later than the staleness limit. */
async function decided(status: () => Promise<string>): Promise<string> {
  let result = '';
  await until(async () => (result = await status()) !== 'KeyStoreUnavailable', 'the store is available');
  return result;
}

/**
 * Waits until requests are refused for a reason that contains this text. While a heartbeat is late, the reason is that
 * Redis does not reply.
 */
function refusedBecause(records: RedisRecords, text: string): Promise<void> {
  return until(() => records.unavailableReason()?.includes(text) === true, `requests are refused because of ${text}`);
}

/**
 * Looks the key up 20 times. Returns the distinct results, and how many look-ups found the store unavailable. A stall
 * counts once: the next look-up waits until the store is available again.
 */
async function lookUps(status: () => Promise<string>): Promise<{ unavailable: number; results: string[] }> {
  const seen: string[] = [];
  let unavailable = 0;
  for (let count = 0; count < 20; count += 1) {
    const first = await status();
    if (first === 'KeyStoreUnavailable') unavailable += 1;
    seen.push(first === 'KeyStoreUnavailable' ? await decided(status) : first);
    await wait(100);
  }
  return { unavailable, results: [...new Set(seen)] };
}

const mostUnavailable = 5;

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

// These servers reject writes. Regression: the gateway could not renew its acknowledgement on such a server, so the
// acknowledgement expired. The registry, on the new master, then no longer waited for this gateway. It reported a
// revocation as in force, while the gateway continued to use the old server forever.
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
      await refusedBecause(records, 'Redis rejects the acknowledgements of this gateway (READONLY or NOREPLICAS)');
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
  await until(() => records.unavailableReason() !== 'Redis does not reply', 'the server was queried');
  for (let count = 0; count < 20; count += 1) {
    t.equal(await status(), 'KeyStoreUnavailable');
    await wait(20);
  }
});

const full: Record<string, [refuse: Change, allow: Change, error: string]> = {
  'is out of memory': [
    ({ client }) => client.config('SET', 'maxmemory', '1'),
    ({ client }) => client.config('SET', 'maxmemory', '0'),
    'OOM',
  ],
  'cannot save': [
    async ({ client }) => {
      const [, folder = ''] = await client.config('GET', 'dir');
      await mkdir(`${folder}/dump.rdb`); // Redis cannot replace a directory with its file, so no save succeeds
      await client.config('SET', 'save', '3600 1');
      // The process that sends the data to a replica still exists for up to 100 ms after the replica has all keys. No
      // save can start before it ends.
      await until(async () => (await client.info('persistence')).includes('rdb_bgsave_in_progress:0'), 'no other save');
      await client.bgsave();
    },
    ({ client }) => client.config('SET', 'save', ''),
    'MISCONF',
  ],
};

for (const [what, [refuse, allow, error]] of Object.entries(full)) {
  t.test(`a server that ${what} rejects the registry too, and is still queried`, { skip: withoutRedis }, async (t) => {
    const server = await startSeeded(t);
    const { records, status } = open(t, server);
    await until(async () => (await status()) === 'ACTIVE (cache)', 'ready');
    await refuse(server);
    await until(async () => (await server.client.exists('mg:gateway:g')) === 0, 'the acknowledgement has expired');
    await t.rejects(server.client.set('mg:revision', '2'), 'nothing can be revoked');
    const { unavailable, results } = await lookUps(status);
    t.same(results, ['ACTIVE (store)']);
    t.ok(unavailable <= mostUnavailable, `${unavailable} look-ups failed`);
    await until(() => records.unavailableReason() === null, 'every key is looked up');
    await allow(server);
    await until(async () => (await status()) === 'ACTIVE (cache)', 'the record is cached again');
  });

  // Regression: the gateway did not ask the sentinels. So all keys got 503 once the gateway's lease was over, that is,
  // the registry's permission to use cached records.
  t.test(
    `a server that ${what} is queried as long as the sentinels name it as the master`,
    { skip: withoutRedis },
    async (t) => {
      const server = await startSeeded(t);
      const line = `sentinel monitor mymaster 127.0.0.1 ${server.port} 1`;
      const sentinel = await startRedis(t, [line], ['--sentinel']);
      await startEnrolling(t, server, 'g').name();
      const sentinels = [{ host: '127.0.0.1', port: sentinel.port }];
      const { records, status } = open(t, server, { sentinels, masterName: 'mymaster' });
      await until(async () => (await status()) === 'ACTIVE (cache)', 'enrolled');
      await refuse(server);
      await wait(maxStaleMilliseconds + 2_000);
      const { unavailable, results } = await lookUps(status);
      t.same(results, ['ACTIVE (store)']);
      t.ok(unavailable <= mostUnavailable, `${unavailable} look-ups failed`);
      await until(() => records.unavailableReason() === null, 'every key is looked up');
      await t.rejects(server.client.set('mg:revision', '2'), 'nothing can be revoked');
      await sentinel.client.call('SENTINEL', 'REMOVE', 'mymaster');
      await refusedBecause(records, error);
      t.equal(await status(), 'KeyStoreUnavailable', 'no sentinel names it');
      await sentinel.client.call('SENTINEL', 'MONITOR', 'mymaster', '127.0.0.1', String(server.port), '1');
      await until(async () => (await status()) === 'ACTIVE (store)', 'it is named again');
      await allow(server);
      await until(async () => (await status()) === 'ACTIVE (cache)', 'the record is cached again');
    },
  );

  t.test(
    `a server that ${what}, has a replica and no sentinels is trusted for no longer than the staleness limit`,
    { skip: withoutRedis },
    async (t) => {
      const server = await startSeeded(t);
      const replica = await startRedis(t, [`replicaof 127.0.0.1 ${server.port}`]);
      await until(async () => (await replica.client.exists(`mg:key:${lookupId}`)) === 1, 'replicated');
      await startEnrolling(t, server, 'g').name({ replicas: 1 });
      const { records, status } = open(t, server);
      await until(async () => (await status()) === 'ACTIVE (cache)', 'enrolled');
      await refuse(server);
      await wait(maxStaleMilliseconds + 2_000);
      for (let count = 0; count < 20; count += 1) {
        t.equal(await status(), 'KeyStoreUnavailable');
        await wait(100);
      }
      await refusedBecause(records, error);
      await allow(server);
      await until(async () => (await status()) === 'ACTIVE (cache)', 'the gateway recovers by itself');
    },
  );
}

// A registry needs a lease to write to Redis, and only one registry has it at a time. Regression: a registry that did
// not reach Redis renewed its lease with each attempt. So the other registry never wrote a revocation to Redis.
onEachDatabase('split brain: of two registries, the one that reaches Redis projects', async (t, url) => {
  const { context, database, projection, store, time } = await projectionFixture(t, url);
  const [disconnected, other] = [projection('lost'), projection('other')];
  const { id } = await createMerchant(context, registryAuthor, { name: 'x' });
  const { keyId } = await createKey(context, registryAuthor, id, { environment: 'live' });
  await disconnected.run();
  await revokeKey(context, registryAuthor, keyId);
  // After failures a registry pauses for up to 10 seconds, which is longer than a lease. In each round, the
  // disconnected registry runs first.
  for (let attempt = 0; attempt < 3; attempt += 1) {
    store.fails = () => 'before';
    await t.rejects(disconnected.run(), /the store is away/);
    store.fails = () => null;
    await other.run();
    time.advance(10_000);
  }
  t.same(await differences(database, store), []);
});

onEachDatabase(
  'split brain: a server promoted during the comparison gets no changes before it is compared',
  async (t, url) => {
    const { context, projection, store, time } = await projectionFixture(t, url);
    const one = projection('one');
    await one.run();
    await createMerchant(context, registryAuthor, { name: 'x' });
    await one.run();
    const published = store.revision;
    await createMerchant(context, registryAuthor, { name: 'y' });
    store.epoch += 1;
    // The connection is reopened, and leads to a replica that lacks the newest change.
    store.begin = () => {
      [store.server, store.epoch, store.revision] = ['run-2', store.epoch + 1, published - 1];
      store.begin = () => Promise.resolve();
      return Promise.resolve();
    };
    await t.rejects(one.run(), { message: /^Redis was reconnected while its records were compared/ });
    t.equal(store.revision, published - 1, 'nothing was published there');
    t.equal(one.settledIn, null);
    await one.run();
    time.advance(2_000);
    await one.run();
    t.ok(store.revision > published);
  },
);

onEachDatabase(
  'split brain: a long pass stops confirming changes when no majority names its server',
  async (t, url) => {
    const { insertMerchants, projection, store, time } = await projectionFixture(t, url);
    store.sealIds = ['old'];
    const one = projection('one');
    await one.run();
    await insertMerchants(3_000);
    store.sealIds = ['new', 'old'];
    let pages = 0;
    store.onWrite = () => {
      pages += 1;
      time.advance(1_000);
      if (pages === 2) store.fails = (call) => (call === 'snapshot' ? 'before' : null);
    };
    await t.rejects(one.run());
    t.equal(pages, 2, 'the next page is not written');
    t.equal(one.settledIn, null);
  },
);
