import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { openRecordsStore } from '../../src/adapters/redis/registry/open-records-store.js';
import { RedisRecords } from '../../src/adapters/redis/gateway/redis-records.js';
import { lookupIdOf } from '../../src/gateway/api-key.js';
import { acknowledgementOf, startEnrolling } from './enrolling.js';
import { keyStatus } from './key-status.js';
import { seededKey, seededRecords } from './key-store-contract.js';
import { freePort, startRedis, until, withoutRedis } from './redis-server.js';
import type { RedisServer, Teardown } from './redis-server.js';

// These tests run in parallel: they mostly wait, each for its own servers.
t.jobs = 5;

const lookupId = lookupIdOf(seededKey, null);
const keyName = `mg:key:${lookupId}`;
const nowhere = { sentinels: null, masterName: 'mymaster', cluster: null, username: null, password: null, ca: null };

/** A gateway's records, and the status of a key according to them. */
function open(t: Teardown, url: string, { maxStaleMilliseconds = 3_000, ...address } = {}) {
  const reported: string[] = [];
  const records = new RedisRecords({
    address: { ...nowhere, url, commandTimeoutMilliseconds: 200, ...address },
    prefix: 'mg:',
    cache: {
      ...{ maxEntries: 10, maxAgeMilliseconds: 60_000, unknownMaxEntries: 10, unknownMaxAgeMilliseconds: 5_000 },
      maxStaleMilliseconds,
    },
    identity: {
      instanceId: 'g',
      environment: 'live',
      host: 'test',
      startedAt: '2026-01-01T00:00:00.000Z',
      version: '1',
    },
    clock: { now: () => Date.now() },
    onMalformed: () => undefined,
    onLost: ({ message }) => reported.push(message),
    onFound: () => undefined,
    onNotice: (notice) => reported.push(notice),
  });
  t.teardown(() => records.close());
  return { records, reported, status: () => keyStatus(records, lookupId) };
}

/**
 * A lease is the registry's permission to use cached records for a time. This time, in milliseconds, is so long that
 * the lease does not end when a busy machine renews it late.
 */
const longLease = 6_000;

/**
 * Whether the gateway refuses requests because no proof shows that its server is the master. A failed look-up alone
 * does not show this: a late reply of a busy machine fails a look-up too.
 */
function isUnproved(records: RedisRecords): boolean {
  return (records.unavailableReason() ?? '').startsWith('cannot verify that this Redis server is still the master');
}

/**
 * How often the cache stopped being fresh, in a period longer than a lease. A stall counts once: the next look-up waits
 * until the cache is fresh again.
 */
async function interruptions(status: () => Promise<string>): Promise<number> {
  let count = 0;
  for (const end = Date.now() + longLease + 1_000; Date.now() < end;) {
    await wait(50);
    if ((await status()) === 'ACTIVE (cache)') continue;
    count += 1;
    await until(async () => (await status()) === 'ACTIVE (cache)', 'the cache is fresh again');
  }
  return count;
}

/** Late heartbeats cause no more interruptions than this, even if the machine is busy all the time. */
const mostInterruptions = 3;

async function startSeeded(t: Teardown, settings: readonly string[] = []): Promise<RedisServer> {
  const server = await startRedis(t, settings);
  for (const [name, value] of Object.entries(seededRecords)) await server.client.set(name, JSON.stringify(value));
  await server.client.set('mg:revision', '7');
  return server;
}

t.test('a gateway caches nothing before the registry has enrolled it', { skip: withoutRedis }, async (t) => {
  const server = await startSeeded(t);
  const registry = startEnrolling(t, server, 'g');
  await registry.stop();
  await registry.name();
  // The timeout is long, because each look-up must succeed, and a busy machine delays some of them.
  const { records, reported, status } = open(t, server.url, { commandTimeoutMilliseconds: 2_000 } as object);
  let starting: string | null = null;
  await until(async () => {
    const found = await status();
    starting = records.startingReason();
    return found === 'ACTIVE (store)';
  }, 'answered');
  t.match(starting, 'waiting for the registry to enrol', 'not ready for traffic yet');
  t.equal(records.unavailableReason(), null);
  for (let count = 0; count < 5; count += 1) t.equal(await status(), 'ACTIVE (store)');
  await until(() => records.startingReason() === null, 'ready without a grant');
  await until(() => reported.length > 0, 'told');
  t.match(reported, ['the registry has not enrolled this gateway']);
  registry.resume();
  await until(async () => (await status()) === 'ACTIVE (cache)', 'enrolled');
  t.match(await acknowledgementOf(server, 'g'), {
    ...{ revision: 7, generation: '01CONTRACT', lifetimeMilliseconds: 4_000, version: '1', leaving: undefined },
  });
  t.ok(
    (await server.client.pttl('mg:gateway:g')) > 8_000,
    'the record outlives the time until the registry removes the gateway',
  );
  await registry.stop();
  await server.client.del('mg:grant:g');
  await until(async () => (await status()) === 'ACTIVE (store)', 'removed, and read on demand as before');
  await records.close();
  t.match(await acknowledgementOf(server, 'g'), { leaving: true, revision: 7 });
  t.ok((await server.client.pttl('mg:gateway:g')) <= 4_000);
  t.equal(await status(), 'KeyStoreUnavailable', 'a closed gateway decides nothing');
});

t.test('while the registry is down, a gateway on a single server is unaffected', { skip: withoutRedis }, async (t) => {
  const server = await startSeeded(t);
  const registry = startEnrolling(t, server, 'g');
  await registry.name();
  const { status } = open(t, server.url, { maxStaleMilliseconds: longLease });
  await until(async () => (await status()) === 'ACTIVE (cache)', 'enrolled');
  await registry.stop();
  for (const end = Date.now() + longLease + 2_000; Date.now() < end;) {
    await wait(50);
    t.match(await status(), 'ACTIVE');
  }
  await until(async () => (await status()) === 'ACTIVE (cache)', 'still enrolled');
});

t.test(
  'a restarted server is trusted by a gateway that remembers its data as complete',
  { skip: withoutRedis },
  async (t) => {
    const server = await startSeeded(t, ['appendonly yes', 'appendfsync always']);
    const registry = startEnrolling(t, server, 'g');
    await registry.name();
    const { reported, status } = open(t, server.url);
    await until(async () => (await status()) === 'ACTIVE (cache)', 'enrolled');
    await server.kill();
    await server.restart();
    await registry.stop();
    await until(async () => (await status()) === 'ACTIVE (cache)', 'cached again');
    t.match(reported.at(-1), 'the registry has not compared this Redis server');
  },
);

t.test(
  'while the store is emptied, cached records are served up to the stale limit',
  { skip: withoutRedis },
  async (t) => {
    const server = await startSeeded(t);
    const registry = startEnrolling(t, server, 'g');
    await registry.name();
    const { records, status } = open(t, server.url);
    await until(async () => (await status()) === 'ACTIVE (cache)', 'enrolled');
    await server.kill();
    await server.restart();
    await until(async () => (await status()) === 'ACTIVE (stale)', 'served');
    await t.rejects(
      Promise.resolve(records.key(lookupIdOf(`${seededKey}x`, null))),
      /has no meta record/,
      "an uncached key fails with the store's reason, although cached keys are still served",
    );
    const asked = Date.now();
    let servedAt = asked;
    await until(async () => {
      const askedAt = Date.now();
      const isServed = (await status()) !== 'KeyStoreUnavailable';
      if (isServed) servedAt = askedAt;
      return !isServed;
    }, 'no longer served');
    t.ok(servedAt - asked < 3_500);
    t.match(records.unavailableReason(), 'has no meta record');
  },
);

t.test('a Redis server that does not report its run id is not trusted', { skip: withoutRedis }, async (t) => {
  const server = await startSeeded(t);
  await startEnrolling(t, server, 'g').name();
  await server.client.call('ACL', 'SETUSER', 'mute', 'on', 'nopass', '~*', '&*', '+@all', '-info');
  const { records, status } = open(t, server.url, { username: 'mute', password: 'x' } as object);
  await until(
    () => (records.unavailableReason() ?? '').includes('grant the Redis user the right +info'),
    'the reason is reported',
  );
  t.equal(await status(), 'KeyStoreUnavailable');
  await server.client.call('ACL', 'SETUSER', 'mute', '+info');
  await until(async () => (await status()) === 'ACTIVE (cache)', 'the user got the right');
  t.equal(records.unavailableReason(), null);
});

/** Starts a seeded server with one replica that has its records, and a registry that has seen the replica. */
async function startReplicated(t: Teardown) {
  const server = await startSeeded(t);
  const replica = await startRedis(t, [`replicaof 127.0.0.1 ${server.port}`]);
  await until(async () => (await replica.client.get('mg:revision')) === '7', 'replicated');
  const registry = startEnrolling(t, server, 'g');
  await registry.name({ replicas: 1 });
  return { server, replica, registry };
}

t.test(
  'replicas prove again that the server is the master as soon as it reports its run id',
  { skip: withoutRedis },
  async (t) => {
    const { server, registry } = await startReplicated(t);
    await server.client.call('ACL', 'SETUSER', 'mute', 'on', 'nopass', '~*', '&*', '+@all');
    const user = { username: 'mute', password: 'x', maxStaleMilliseconds: longLease };
    const { records, status } = open(t, server.url, user);
    await until(async () => (await status()) === 'ACTIVE (cache)', 'enrolled');
    await registry.stop();
    t.ok((await interruptions(status)) <= mostInterruptions, 'the replica follows it');
    await server.client.call('ACL', 'SETUSER', 'mute', '-info');
    await server.client.call('CLIENT', 'KILL', 'USER', 'mute');
    await until(() => (records.unavailableReason() ?? '').includes('+info'), 'the server is unknown');
    t.equal(await status(), 'KeyStoreUnavailable');
    await server.client.call('ACL', 'SETUSER', 'mute', '+info');
    await until(async () => (await status()).startsWith('ACTIVE'), 'the user got the right');
  },
);

t.test(
  'without the registry and Sentinel, all replicas prove that the server is the master',
  { skip: withoutRedis },
  async (t) => {
    const { server, replica, registry } = await startReplicated(t);
    const { records, status } = open(t, server.url, { maxStaleMilliseconds: longLease });
    await until(async () => (await status()) === 'ACTIVE (cache)', 'enrolled');
    await registry.stop();
    t.ok((await interruptions(status)) <= mostInterruptions, 'a replica follows it');
    await replica.client.replicaof('127.0.0.1', String(await freePort()));
    await until(() => isUnproved(records), 'the replica may be the master by now');
    t.equal(await status(), 'KeyStoreUnavailable');
    const lower = open(t, server.url, { replicas: 0 } as object);
    await until(async () => (await lower.status()).startsWith('ACTIVE'), 'unless the operator excludes it');
    registry.resume();
    await until(async () => (await status()) === 'ACTIVE (cache)', 'the registry is back');
  },
);

t.test('replicas that Redis does not show count if the operator configures them', { skip: withoutRedis }, async (t) => {
  const server = await startSeeded(t);
  const registry = startEnrolling(t, server, 'g');
  await registry.name({ replicas: 0 });
  const { records, status } = open(t, server.url, { replicas: 1 } as object);
  await until(async () => (await status()) === 'ACTIVE (cache)', 'enrolled');
  await registry.stop();
  await until(() => isUnproved(records), 'a hidden replica may be the master by now');
  t.equal(await status(), 'KeyStoreUnavailable');

  const address = { ...nowhere, url: server.url, commandTimeoutMilliseconds: 2_000, replicas: 1 };
  const store = openRecordsStore(address, 'mg:', { onLost: () => undefined, onFound: () => undefined });
  t.teardown(() => store.close());
  let replicas = NaN;
  const isConnected = async (): Promise<boolean> => {
    replicas = (await store.snapshot().catch(() => null))?.replicas ?? NaN;
    return !Number.isNaN(replicas);
  };
  await until(isConnected, 'connected');
  t.equal(replicas, 1, 'the registry writes the count for all gateways');
  t.equal(store.canFailOver, true);
});

t.test(
  'a registry that reads before the sentinels respond connects as soon as they do',
  { skip: withoutRedis },
  async (t) => {
    const server = await startRedis(t);
    const sentinel = await startRedis(t, [`sentinel monitor mymaster 127.0.0.1 ${server.port} 1`], ['--sentinel']);
    const sentinels = [{ host: '127.0.0.1', port: sentinel.port }];
    const address = { ...nowhere, url: 'redis://ignored:1', sentinels, commandTimeoutMilliseconds: 2_000 };
    const store = openRecordsStore(address, 'mg:', { onLost: () => undefined, onFound: () => undefined });
    t.teardown(() => store.close());
    await t.rejects(store.snapshot());
    const isConnected = async (): Promise<boolean> => (await store.snapshot().catch(() => null)) !== null;
    await until(isConnected, 'connected');
  },
);

t.test('a gateway follows the majority of the sentinels to another server', { skip: withoutRedis }, async (t) => {
  const [before, after] = [await startSeeded(t), await startSeeded(t)];
  await after.client.set(keyName, JSON.stringify({ ...(seededRecords[keyName] as object), status: 'REVOKED' }));
  const sentinel = await startRedis(t, [`sentinel monitor mymaster 127.0.0.1 ${before.port} 1`], ['--sentinel']);
  for (const server of [before, after]) await startEnrolling(t, server, 'none').name();
  const sentinels = [{ host: '127.0.0.1', port: sentinel.port }];
  const { reported, status } = open(t, 'redis://ignored:1', { sentinels } as object);
  await until(async () => (await status()) === 'ACTIVE (store)', 'asked');
  await sentinel.client.call('SENTINEL', 'REMOVE', 'mymaster');
  await until(async () => (await status()) === 'KeyStoreUnavailable', 'no sentinel names it');
  await sentinel.client.call('SENTINEL', 'MONITOR', 'mymaster', '127.0.0.1', String(after.port), '1');
  await until(async () => (await status()) === 'REVOKED (store)', 'connected there');
  t.match(reported.join(), 'most sentinels name another server');
});

// Regression: a gateway asked the sentinels only about a server that it trusted. So it stayed at a former master, which
// it did not trust.
t.test(
  'a gateway leaves a server that it does not trust if the sentinels name another',
  { skip: withoutRedis },
  async (t) => {
    const [before, after] = [await startSeeded(t), await startSeeded(t)];
    await startEnrolling(t, before, 'none').name({ servers: ['another'] });
    await startEnrolling(t, after, 'none').name();
    const sentinel = await startRedis(t, [`sentinel monitor mymaster 127.0.0.1 ${before.port} 1`], ['--sentinel']);
    const sentinels = [{ host: '127.0.0.1', port: sentinel.port }];
    const { records, status } = open(t, 'redis://ignored:1', { sentinels } as object);
    await until(() => (records.unavailableReason() ?? '').includes('has not compared'), 'connected');
    t.equal(await status(), 'KeyStoreUnavailable');
    await sentinel.client.call('SENTINEL', 'REMOVE', 'mymaster');
    await sentinel.client.call('SENTINEL', 'MONITOR', 'mymaster', '127.0.0.1', String(after.port), '1');
    await until(async () => (await status()) === 'ACTIVE (store)', 'connected to the other server');
  },
);

t.test('hung sentinels do not delay a majority of the others', { skip: withoutRedis }, async (t) => {
  const server = await startSeeded(t);
  const sentinels = await Promise.all(
    [1, 2, 3].map(() => startRedis(t, [`sentinel monitor mymaster 127.0.0.1 ${server.port} 2`], ['--sentinel'])),
  );
  const registry = startEnrolling(t, server, 'g');
  await registry.name();
  sentinels[0]?.signal('SIGSTOP');
  const places = sentinels.map(({ port }) => ({ host: '127.0.0.1', port }));
  const options = { sentinels: places, maxStaleMilliseconds: longLease } as object;
  const { records, status } = open(t, 'redis://ignored:1', options);
  await until(async () => (await status()) === 'ACTIVE (cache)', 'the first one hangs as the gateway starts');
  await registry.stop();
  sentinels[0]?.signal('SIGCONT');
  sentinels[2]?.signal('SIGSTOP');
  const seen: string[] = [];
  for (const end = Date.now() + longLease + 2_000; Date.now() < end;) {
    await wait(20);
    seen.push(await status());
  }
  // A busy machine delays heartbeats; then cached records are stale for a moment.
  const others = [...new Set(seen)].filter((one) => one !== 'ACTIVE (cache)' && one !== 'ACTIVE (stale)');
  t.same(others, [], 'two of three sentinels name the server, without the registry');
  t.ok(seen.filter((one) => one === 'ACTIVE (cache)').length > seen.length / 2, 'the cache is fresh most of the time');
  await until(async () => (await status()) === 'ACTIVE (cache)', 'they still do');
  sentinels[1]?.signal('SIGSTOP');
  await until(async () => (await status()) === 'KeyStoreUnavailable', 'one of three is not enough');
  t.match(records.unavailableReason(), 'cannot verify that this Redis server is still the master');
  for (const sentinel of sentinels) sentinel.signal('SIGCONT');
  await until(async () => (await status()) === 'ACTIVE (store)', 'the sentinels name it again');
});
