import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { RedisRecords } from '../../src/adapters/redis/gateway/redis-records.js';
import { lookupIdOf } from '../../src/gateway/api-key.js';
import { startEnrolling } from './enrolling.js';
import { keyStatus } from './key-status.js';
import { seededRecords } from './key-store-contract.js';
import { startRedis, until, withoutRedis } from './redis-server.js';
import type { RedisServer, Teardown } from './redis-server.js';

// These tests run in parallel: they mostly wait, each for its own servers.
t.jobs = 3;

const [keyCount, merchantCount, foreignCount] = [700, 7, 50];
const idOf = (number: number, environment = 'live'): string => lookupIdOf(`svc_${environment}_Preload${number}`, null);
const idsOfAll = Array.from({ length: keyCount }, (_, number) => idOf(number));

function keyOf(number: number, over: object = {}): string {
  const record = { keyId: `key_${number}`, merchantId: `m_${number % merchantCount}`, environment: 'live' };
  return JSON.stringify({ ...record, status: 'ACTIVE', permissions: ['*'], expiresAt: null, revision: 7, ...over });
}

function merchantOf(id: string, over: object = {}): string {
  const lists = { ipAllowlist: null, originAllowlist: null };
  return JSON.stringify({ merchantId: id, name: 'M', status: 'ACTIVE', goLive: true, ...lists, revision: 7, ...over });
}

/** Starts a server with keys of two environments, and a simulated registry that enrols the gateway `g`. */
async function startStore(t: Teardown, settings: readonly string[] = []) {
  const server = await startRedis(t, settings);
  await seed(server);
  const registry = startEnrolling(t, server, 'g');
  await registry.name();
  return { server, registry };
}

async function seed({ client }: RedisServer): Promise<void> {
  const pipeline = client.pipeline().set('mg:meta', JSON.stringify(seededRecords['mg:meta'])).set('mg:revision', '7');
  for (let number = 0; number < keyCount; number += 1) pipeline.set(`mg:key:${idOf(number)}`, keyOf(number));
  for (let number = 0; number < foreignCount; number += 1) {
    const foreign = { environment: 'test', merchantId: 'm_test' };
    pipeline.set(`mg:key:${idOf(number, 'test')}`, keyOf(number, foreign));
  }
  for (let number = 0; number < merchantCount; number += 1)
    pipeline.set(`mg:merchant:m_${number}`, merchantOf(`m_${number}`));
  await pipeline.set('mg:merchant:m_test', merchantOf('m_test')).exec();
}

function open(t: Teardown, url: string, { maxEntries = 1_000, ...address }: Record<string, unknown> = {}) {
  const reported: string[] = [];
  const nowhere = { sentinels: null, masterName: '', cluster: null, username: null, password: null, ca: null };
  const records = new RedisRecords({
    address: { ...nowhere, url, commandTimeoutMilliseconds: 500, ...address },
    prefix: 'mg:',
    cache: {
      ...{ maxEntries: Number(maxEntries), maxAgeMilliseconds: 60_000, maxStaleMilliseconds: 30_000 },
      ...{ unknownMaxEntries: 10, unknownMaxAgeMilliseconds: 60_000 },
    },
    identity: { instanceId: 'g', environment: 'live', host: 'test', startedAt: '2026-01-01T00:00:00.000Z' },
    clock: { now: () => Date.now() },
    ...{ onMalformed: () => undefined, onLost: () => undefined, onFound: () => undefined },
    preload: {
      onFull: (seen) => reported.push(`full: ${seen}`),
      onRefused: ({ message }) => reported.push(message),
    },
  });
  t.teardown(() => records.close());
  const preloadStats = () => records.recordStats().preload;
  const reaches = (state: string) =>
    until(() => preloadStats()?.state === state, `${state}: ${JSON.stringify(preloadStats())}`);
  return { records, reported, preloadStats, reaches };
}

const whole = { keys: keyCount, merchants: merchantCount, seen: keyCount + foreignCount };

/** The different statuses of these keys, sorted, each with its source. */
async function statusesOf(records: RedisRecords, ids: readonly string[]): Promise<string[]> {
  return [...new Set(await Promise.all(ids.map((id) => keyStatus(records, id))))].toSorted();
}

for (const how of ['stops answering', 'is killed']) {
  t.test(`a gateway has every key and merchant when Redis ${how}`, { skip: withoutRedis }, async (t) => {
    const { server } = await startStore(t);
    const { records, preloadStats, reaches } = open(t, server.url);
    await reaches('complete');
    t.match(preloadStats(), whole, 'the keys of its environment, and only the merchants that they name');
    if (how === 'is killed') await server.kill();
    else server.signal('SIGSTOP');
    t.teardown(() => {
      server.signal('SIGCONT');
    });
    await wait(2_500);
    t.same(await statusesOf(records, idsOfAll), ['ACTIVE (stale)']);
    for (let number = 0; number < merchantCount; number += 1) t.ok((await records.merchant(`m_${number}`)).record);
    t.equal(
      await keyStatus(records, idOf(0, 'test')),
      'KeyStoreUnavailable',
      'a key of the other environment is not cached',
    );
  });
}

t.test('changed records are read again, and new ones too', { skip: withoutRedis }, async (t) => {
  const { server } = await startStore(t);
  const { records, preloadStats, reaches } = open(t, server.url);
  await reaches('complete');
  const changed = idsOfAll.slice(0, 20);
  for (const [number, id] of changed.entries()) {
    await server.client.set(`mg:key:${id}`, keyOf(number, { status: 'REVOKED', revision: 8 }));
  }
  await server.client.set('mg:merchant:m_0', merchantOf('m_0', { status: 'SUSPENDED', revision: 8 }));
  await server.client.set('mg:merchant:m_new', merchantOf('m_new'));
  await server.client.set(`mg:key:${idOf(-1)}`, keyOf(-1, { merchantId: 'm_new' }));
  await server.client.set('mg:revision', '8');
  await until(
    () => preloadStats()?.keys === keyCount + 1 && preloadStats()?.merchants === merchantCount + 1,
    'cached again',
  );
  t.same(await statusesOf(records, changed), ['REVOKED (cache)']);
  t.equal(await keyStatus(records, idOf(-1)), 'ACTIVE (cache)');
  t.match(await records.merchant('m_0'), { record: { merchantStatus: 'SUSPENDED' }, source: 'cache' });
  t.match(await records.merchant('m_new'), { record: { merchantId: 'm_new' }, source: 'cache' });
});

t.test('after the cache was dropped, everything is read again', { skip: withoutRedis }, async (t) => {
  const { server, registry } = await startStore(t);
  const { records, preloadStats, reaches } = open(t, server.url);
  await reaches('complete');
  await server.client.call('CLIENT', 'KILL', 'TYPE', 'pubsub');
  await until(() => preloadStats()?.state === 'loading', 'dropped');
  await reaches('complete');
  t.match(preloadStats(), whole);

  await server.client.flushall();
  await until(
    async () => (await statusesOf(records, idsOfAll)).join() === 'ACTIVE (stale)',
    'cached records are stale',
  );
  await seed(server);
  await registry.name({ generation: '01OTHER' });
  await until(() => preloadStats()?.state === 'loading', 'dropped');
  await reaches('complete');
  t.match(preloadStats(), whole);
  t.same(await statusesOf(records, idsOfAll), ['ACTIVE (cache)']);
});

t.test('records beyond maxEntries are left out, and none is evicted for them', { skip: withoutRedis }, async (t) => {
  const { server } = await startStore(t);
  const exact = open(t, server.url, { maxEntries: keyCount });
  await exact.reaches('complete');
  t.same(exact.reported, [], 'exactly maxEntries is not full');
  t.match(exact.preloadStats(), whole);
  await server.client.set(`mg:key:${idOf(-1)}`, keyOf(-1));
  await exact.reaches('full');
  t.equal(exact.records.recordStats().known.evictions, 0);
  await exact.records.close();

  const small = open(t, server.url, { maxEntries: 100 });
  const used = idsOfAll.slice(-10);
  await until(async () => (await statusesOf(small.records, used)).join() === 'ACTIVE (cache)', 'used');
  await small.reaches('full');
  t.match(small.preloadStats(), { ...whole, keys: 100, seen: keyCount + foreignCount + 1 });
  t.equal(small.records.recordStats().known.evictions, 0);
  t.same(await statusesOf(small.records, used), ['ACTIVE (cache)']);
  await server.client.call('CLIENT', 'KILL', 'TYPE', 'pubsub');
  await until(() => small.preloadStats()?.state === 'loading', 'dropped');
  await small.reaches('full');
  t.equal(small.reported.length, 1, 'reported once');
});

for (const right of ['scan', 'mget']) {
  t.test(`without the right +${right} a gateway reads records on demand`, { skip: withoutRedis }, async (t) => {
    const { server } = await startStore(t);
    await server.client.call('ACL', 'SETUSER', 'user', 'on', '>secret', '~*', '&*', '+@all', `-${right}`);
    const { records, reported, preloadStats, reaches } = open(t, server.url, { username: 'user', password: 'secret' });
    await reaches('refused');
    t.equal(preloadStats()?.keys, 0);
    const [id = ''] = idsOfAll;
    await until(async () => (await keyStatus(records, id)) === 'ACTIVE (cache)', 'read and cached');
    await server.client.set(`mg:key:${id}`, keyOf(0, { status: 'REVOKED', revision: 8 }));
    await until(async () => (await keyStatus(records, id)).startsWith('REVOKED'), 'heard');
    await server.client.call('CLIENT', 'KILL', 'TYPE', 'pubsub');
    await until(() => preloadStats()?.state === 'loading', 'retried on the next connection');
    await reaches('refused');
    t.equal(reported.length, 1);
    t.match(reported[0], new RegExp(`NOPERM.*${right}`));
  });
}

t.test('a gateway that is not enrolled preloads nothing', { skip: withoutRedis }, async (t) => {
  const { server, registry } = await startStore(t);
  await registry.stop();
  const { records, preloadStats, reaches } = open(t, server.url);
  await until(async () => (await keyStatus(records, idOf(0))) === 'ACTIVE (store)', 'answered');
  await wait(500);
  t.match(preloadStats(), { state: 'loading', keys: 0, seen: 0 });
  registry.resume();
  await reaches('complete');
  t.match(preloadStats(), whole);
});

t.test('a malformed record does not stop the preload of the others', { skip: withoutRedis }, async (t) => {
  const { server } = await startStore(t);
  await server.client.set(`mg:key:${idOf(3)}`, '{');
  await server.client.del(`mg:key:${idOf(4)}`);
  await server.client.rpush(`mg:key:${idOf(4)}`, 'a list');
  const { records, reaches } = open(t, server.url);
  await reaches('complete');
  server.signal('SIGSTOP');
  t.teardown(() => {
    server.signal('SIGCONT');
  });
  t.same(
    await statusesOf(
      records,
      [3, 4].map((number) => idOf(number)),
    ),
    ['KeyStoreUnavailable'],
  );
  // Redis becomes unavailable during these look-ups, so some come from a fresh cache and some from a stale one.
  const others = await statusesOf(records, idsOfAll.toSpliced(3, 2));
  t.same(
    others.filter((status) => !['ACTIVE (cache)', 'ACTIVE (stale)'].includes(status)),
    [],
  );
});
