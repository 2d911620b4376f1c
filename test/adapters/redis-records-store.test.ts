import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { connectRedis, reopen } from '../../src/adapters/redis/connection.js';
import { openRecordsStore } from '../../src/adapters/redis/registry/open-records-store.js';
import type { OpenedRecordsStore } from '../../src/adapters/redis/registry/open-records-store.js';
import { freePort, runIdOf, startRedis, withoutRedis } from './redis-server.js';
import type { RedisServer, Teardown } from './redis-server.js';
import { until } from './redis-cluster.js';

const meta = { version: 1, generation: 'g', projectedAt: '2026-01-01T00:00:00.000Z' } as const;
const acknowledgement = { revision: 3, environment: 'live', host: 'h', startedAt: '2026-01-01T00:00:00.000Z' } as const;

function open(t: Teardown, url: string, prefix = 'mg:', part: object = {}): OpenedRecordsStore {
  const address = {
    ...{ url, sentinels: null, masterName: 'mymaster', cluster: null, username: null, password: null, ca: null },
    commandTimeoutMilliseconds: 2_000,
    ...part,
  };
  const store = openRecordsStore(address, prefix, { onLost: () => undefined, onFound: () => undefined });
  t.teardown(() => store.close());
  return store;
}

/** Waits until a store is connected, because it does not queue earlier commands. */
async function connected(store: OpenedRecordsStore): Promise<OpenedRecordsStore> {
  await until(async () => (await store.snapshot()).isWhole, 'the store replies');
  await until(async () => (await store.gateways([])).isFresh, 'notices are tracked');
  return store;
}

function acknowledge({ client }: RedisServer, instanceId: string, part: object = {}): Promise<unknown> {
  const text = JSON.stringify({ instanceId, ...acknowledgement, ...part });
  return client.set(`mg:gateway:${instanceId}`, text, 'PX', 60_000);
}

t.test(
  'records, meta and position are written under the prefix, with the names of the contract',
  { skip: withoutRedis },
  async (t) => {
    const server = await startRedis(t);
    const { client } = server;
    const store = await connected(open(t, server.url, 'a*[b]:'));
    const servers = [await runIdOf(server)];
    t.match(await store.snapshot(), {
      ...{ servers, replicas: 0, meta: null, revision: 0, change: null, isWhole: true },
      epoch: Number,
    });
    await store.begin();
    await store.publish({ revision: 7, change: 'seventh' });
    t.match(await store.snapshot(), { meta: null, revision: 7, change: 'seventh' });
    await store.complete({ ...meta, servers, replicas: 0 }, { revision: 8, change: 'eighth' });
    t.match(await store.snapshot(), { meta: { ...meta, servers, replicas: 0 }, revision: 8, change: 'eighth' });
    t.equal(await client.get('a*[b]:change'), '8:eighth');
    const many = Array.from({ length: 1234 }, (_, index) => ({ name: `key:${index}`, value: { index } }));
    await store.write([...many, { name: 'merchant:m', value: { name: 'x' } }], 8, 'g');
    await store.write([{ name: 'key:0', value: null }], 9, 'g');
    t.equal(await client.get('a*[b]:key:1'), '{"index":1,"generation":"g"}');
    t.equal(await client.get('a*[b]:key:0'), null);
    await client.set('a*[b]:key:damaged', '{');
    await client.rpush('a*[b]:key:list', 'x');
    t.same(await store.read(['key:1', 'key:0', 'key:damaged', 'key:list', 'merchant:m']), [
      { name: 'key:1', value: { index: 1, generation: 'g' } },
      { name: 'key:0', value: null },
      { name: 'key:damaged', value: null },
      { name: 'key:list', value: null },
      { name: 'merchant:m', value: { name: 'x', generation: 'g' } },
    ]);
    await client.del('a*[b]:key:damaged', 'a*[b]:key:list');
    await client.set('axb:key:foreign', '1');
    const names = new Set<string>();
    for await (const name of store.names('key:')) names.add(name);
    t.equal(names.size, 1233);
    t.ok(
      [...names].every((name) => /^key:\d+$/.test(name)),
      'no key of another prefix',
    );
    for (const damaged of ['', '{', '[]', '{"version":2}']) {
      await client.set('a*[b]:meta', damaged);
      t.same((await store.snapshot()).meta, { generation: null }, `${damaged}: a meta record of an unknown generation`);
    }
    for (const damaged of ['x', '-1', '1.5', String(2 ** 51)]) {
      await client.set('a*[b]:revision', damaged);
      t.match(await store.snapshot(), { revision: 0, change: null }, damaged);
    }
    await client.set('a*[b]:revision', '8');
    for (const damaged of ['', 'eighth', '7:seventh', '8:', '8', '8:a b', `8:${'x'.repeat(65)}`, '-8:x']) {
      await client.set('a*[b]:change', damaged);
      t.match(await store.snapshot(), { revision: 8, change: null }, `${damaged}: not the id of that change`);
    }
    // Malformed values must not cause an error. Otherwise the registry would not rewrite them, but wait for a healthy
    // Redis.
    for (const name of ['meta', 'revision', 'change']) {
      await client.del(`a*[b]:${name}`);
      await client.rpush(`a*[b]:${name}`, 'a list');
    }
    t.match(await store.snapshot(), { meta: { generation: null }, revision: 0, change: null });
  },
);

t.test('a look counts replicas, also ones that are briefly disconnected', { skip: withoutRedis }, async (t) => {
  const server = await startRedis(t);
  const replica = await startRedis(t, [`replicaof 127.0.0.1 ${server.port}`]);
  const counted = async (): Promise<boolean> =>
    (await server.client.info('replication')).includes('connected_slaves:1');
  await until(counted, 'replicated');
  const store = open(t, server.url);
  t.equal(store.canFailOver, false, 'nothing is known yet');
  await connected(store);
  t.equal((await store.snapshot()).replicas, 1);
  t.equal(store.canFailOver, true);
  await replica.kill();
  await until(async () => !(await counted()), 'the replica is disconnected');
  await wait(5_100); // until the store counts the replicas again
  t.equal((await store.snapshot()).replicas, 1);
  t.equal(store.canFailOver, true);
});

t.test('the epoch changes with every event that may have hidden a change', { skip: withoutRedis }, async (t) => {
  const server = await startRedis(t);
  const store = await connected(open(t, server.url));
  const epoch = async (): Promise<number> => (await store.snapshot()).epoch;
  const before = await epoch();
  await server.client.set('mg:key:1', '{}');
  t.equal(await epoch(), before);
  await server.client.flushall();
  await until(async () => (await store.gateways([])).epoch !== before, 'a flush is noticed');
  const flushed = await epoch();
  t.equal(await epoch(), flushed, 'once');
  await server.client.call('CLIENT', 'KILL', 'TYPE', 'pubsub');
  await until(async () => (await epoch()) !== flushed, 'the tracking connection was reopened');
  await connected(store);
  const reopened = await epoch();
  await server.client.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
  await until(async () => (await epoch()) !== reopened, 'the command connection was reopened');
  const runId = await runIdOf(server);
  await server.kill();
  await t.rejects(store.snapshot());
  await server.restart();
  await connected(store);
  t.not(await runIdOf(server), runId);
  t.same((await store.snapshot()).servers, [await runIdOf(server)], 'the current server');
});

t.test(
  'revision and change are published together, and only by the writer with the mark',
  { skip: withoutRedis },
  async (t) => {
    const server = await startRedis(t);
    const [store, other] = [await connected(open(t, server.url)), await connected(open(t, server.url))];
    const position = async (): Promise<unknown> => {
      const { revision, change } = await store.snapshot();
      return [revision, change];
    };
    await store.begin();
    await store.publish({ revision: 1, change: 'a' });
    t.same(await position(), [1, 'a']);
    await store.publish({ revision: 1, change: 'b' });
    t.same(await position(), [1, 'b'], 'another change with the same number');
    await other.begin();
    await t.rejects(store.publish({ revision: 2, change: 'c' }), /Redis was replaced or emptied/);
    await t.rejects(store.complete(meta, { revision: 2, change: 'c' }), /Redis was replaced or emptied/);
    t.same(await position(), [1, 'b'], 'neither of them');
    t.equal((await store.snapshot()).meta, null);
    await other.publish({ revision: 2, change: 'd' });
    t.same(await position(), [2, 'd']);
    await server.client.del('mg:writer');
    await t.rejects(other.publish({ revision: 3, change: 'e' }), /Redis was replaced or emptied/);
    t.same(await position(), [2, 'd']);
  },
);

t.test('the mark that the store is complete is written last', { skip: withoutRedis }, async (t) => {
  const server = await startRedis(t);
  const store = await connected(open(t, server.url));
  const seen: string[] = [];
  const monitor = await server.client.monitor();
  t.teardown(() => {
    monitor.disconnect();
  });
  monitor.on('monitor', (_time: string, [command = '', name = '']: string[]) => {
    if (command.toUpperCase() === 'SET') seen.push(name);
  });
  await store.begin();
  await store.complete(meta, { revision: 1, change: 'a' });
  await until(() => Promise.resolve(seen.includes('mg:meta')), 'seen');
  t.same(seen, ['mg:writer', 'mg:change', 'mg:revision', 'mg:meta']);
});

t.test(
  'every live gateway is listed as soon as it has acknowledged, and no gateway that has left',
  { skip: withoutRedis },
  async (t) => {
    const server = await startRedis(t);
    const store = await connected(open(t, server.url));
    const put = (instanceId: string, part: object = {}): Promise<unknown> => acknowledge(server, instanceId, part);
    const list = async () => (await store.gateways([])).gateways.filter((one) => one.acknowledgement !== null);
    const found = async (): Promise<string[]> => (await list()).map(({ instanceId }) => instanceId).toSorted();
    await put('before');
    t.same(await found(), ['before']);
    for (let count = 0; count < 50; count += 1) {
      await put(`new-${count}`);
      t.ok((await found()).includes(`new-${count}`), 'a new gateway is found at once');
    }
    await server.client.del('mg:gateway:before');
    t.notOk((await found()).includes('before'));
    await put('new-1', { revision: 9, generation: 'g', beat: 4, lifetimeMilliseconds: 31_000, version: '1' });
    t.match(
      (await list()).find(({ instanceId }) => instanceId === 'new-1'),
      { acknowledgement: { revision: 9, generation: 'g', beat: 4, lifetimeMilliseconds: 31_000, version: '1' } },
    );
    await server.client.flushall();
    t.same(await found(), []);

    for (const damaged of [
      { revision: -1 },
      { revision: 2 ** 52 },
      { revision: '3' },
      { environment: 'x' },
      { host: 7 },
      { beat: -1 },
      { generation: '' },
      { lifetimeMilliseconds: 10 ** 9 },
      { instanceId: 'another' },
    ]) {
      await put('damaged', damaged);
      t.same(await found(), [], JSON.stringify(damaged));
    }
    await server.client.set('mg:gateway:damaged', '{');
    t.same(await found(), []);
    await put('late');
    await server.client.call('CLIENT', 'KILL', 'TYPE', 'pubsub');
    await put('unheard');
    await until(
      async () => (await found()).join() === 'late,unheard',
      'acknowledgements written without tracking are found',
    );
  },
);

t.test('gateways count in the generation of a store that names its server', { skip: withoutRedis }, async (t) => {
  const server = await startRedis(t);
  const store = await connected(open(t, server.url));
  const generation = async (text: string): Promise<string | null> => {
    await server.client.set('mg:meta', text);
    return (await store.gateways([])).generation;
  };
  const runId = await runIdOf(server);
  const other = 'f'.repeat(runId.length);
  const named = (servers: string[]): string => JSON.stringify({ ...meta, servers });
  t.equal((await store.gateways([])).generation, null, 'no generation');
  t.equal(await generation(named([runId])), 'g');
  t.equal(await generation(named([other])), null, 'another server, whose data was copied here');
  t.equal(await generation(named([runId, other])), null, 'more than this server');
  t.equal(await generation(named([])), null);
  t.equal(await generation(JSON.stringify(meta)), null, 'an earlier release names no server');
  t.equal(await generation('{'), null);
});

t.test('grants are written, and removed together with the acknowledgements', { skip: withoutRedis }, async (t) => {
  const server = await startRedis(t);
  const { client } = server;
  const store = await connected(open(t, server.url));
  const grant = { generation: 'g', beat: 4, lifetimeMilliseconds: 31_000 };
  await store.grant([
    { instanceId: 'a', ...grant },
    { instanceId: 'b', ...grant, beat: 5 },
  ]);
  t.same(JSON.parse((await client.get('mg:grant:a')) ?? ''), grant);
  t.same(JSON.parse((await client.get('mg:grant:b')) ?? ''), { ...grant, beat: 5 });
  t.equal(await client.pttl('mg:grant:a'), -1, 'it does not expire');
  for (const name of ['a', 'b']) await acknowledge(server, name);
  await store.removeGateways(['a', 'none']);
  t.same((await client.keys('mg:g*')).toSorted(), ['mg:gateway:b', 'mg:grant:b']);
  await store.removeGateways([]);
  await store.grant([]);
});

t.test('the clock skew is measured on the notice of an acknowledgement', { skip: withoutRedis }, async (t) => {
  const server = await startRedis(t);
  await acknowledge(server, 'found', { now: Date.now() - 60_000 });
  const store = await connected(open(t, server.url));
  await acknowledge(server, 'ahead', { now: Date.now() + 60_000 });
  await acknowledge(server, 'silent');
  const { gateways } = await store.gateways([]);
  const skew = (id: string) => gateways.find(({ instanceId }) => instanceId === id)?.clockSkewMilliseconds ?? null;
  t.equal(skew('found'), null, 'its time of writing is unknown');
  t.equal(skew('silent'), null, 'it has no timestamp');
  const ahead = skew('ahead') ?? 0;
  t.ok(ahead > 30_000 && ahead <= 60_000, `${ahead} ms`);
});

t.test("a gateway's silence is counted from its last notice", { skip: withoutRedis }, async (t) => {
  const server = await startRedis(t);
  const store = await connected(open(t, server.url));
  const silence = async (): Promise<number> =>
    (await store.gateways(['a'])).gateways.find(({ instanceId }) => instanceId === 'a')?.silentMilliseconds ?? -1;
  await wait(300);
  const began = performance.now();
  await acknowledge(server, 'a');
  t.ok((await silence()) <= performance.now() - began, 'a notice is a sign of life');
  await wait(300);
  t.ok((await silence()) >= 250);
  const deleted = performance.now();
  await server.client.del('mg:gateway:a');
  for (let count = 0; count < 3; count += 1) {
    t.ok((await silence()) <= performance.now() - deleted, 'a deletion is one too');
  }
  await wait(300);
  t.ok((await silence()) >= 250);
  const flushed = performance.now();
  await server.client.flushall();
  t.ok((await silence()) <= performance.now() - flushed, 'a flush may have hidden an acknowledgement');
  await wait(300);
  for (const kind of ['pubsub', 'normal']) {
    const closed = performance.now();
    await server.client.call('CLIENT', 'KILL', 'TYPE', kind, 'SKIPME', 'yes');
    await until(async () => (await store.gateways([])).isFresh, 'reconnected');
    t.ok((await silence()) <= performance.now() - closed, `a new connection may have, too: ${kind}`);
    await wait(300);
  }
});

t.test('a write that Redis refuses is an error', { skip: withoutRedis }, async (t) => {
  const server = await startRedis(t);
  const store = await connected(open(t, server.url));
  await store.begin();
  await server.client.config('SET', 'maxmemory', '1');
  const position = { revision: 1, change: 'a' };
  await t.rejects(store.publish(position), /OOM/);
  await t.rejects(store.complete(meta, position), /OOM/);
  await t.rejects(store.write([{ name: 'key:1', value: { a: 1 } }], 1, 'g'), /OOM/);
  await t.rejects(store.grant([{ instanceId: 'a', generation: 'g', beat: 1, lifetimeMilliseconds: 1 }]), /OOM/);
  await t.rejects(store.begin(), /OOM/);
  await server.kill();
  await t.rejects(store.snapshot());
  await t.rejects(store.gateways([]));
  await t.rejects(store.removeGateways(['a']));
  await t.rejects(store.write([{ name: 'key:1', value: null }], 1, 'g'));
});

t.test('without the right to read its run id a server has no id', { skip: withoutRedis }, async (t) => {
  const server = await startRedis(t);
  await server.client.call('ACL', 'SETUSER', 'mute', 'on', '>x', '~*', '&*', '+@all', '-info');
  const store = await connected(open(t, server.url, 'mg:', { username: 'mute', password: 'x' }));
  t.match(await store.snapshot(), { servers: { length: 0 }, replicas: 0 });
  await server.client.set('mg:meta', JSON.stringify({ ...meta, servers: [] }));
  t.equal((await store.gateways([])).generation, null);
  await server.client.call('ACL', 'SETUSER', 'mute', '+info');
  await until(async () => (await store.snapshot()).servers.length === 1, 'the user got the right');
});

t.test('with sentinels, a majority of the configured ones must name the master', { skip: withoutRedis }, async (t) => {
  const [before, after] = [await startRedis(t), await startRedis(t)];
  const sentinels = await Promise.all(
    [0, 1, 2].map(() => startRedis(t, [`sentinel monitor mymaster 127.0.0.1 ${before.port} 2`], ['--sentinel'])),
  );
  const [first, second, third] = sentinels as [RedisServer, RedisServer, RedisServer];
  const ports = [first.port, second.port, third.port];
  const store = open(t, 'redis://ignored:1', 'mg:', { sentinels: ports.map((port) => ({ host: '127.0.0.1', port })) });
  t.equal(store.canFailOver, true);
  await connected(store);
  const isRefused = /no majority of the configured sentinels names this server/;
  const point = async ({ client }: RedisServer, { port }: RedisServer): Promise<void> => {
    await client.call('SENTINEL', 'REMOVE', 'mymaster');
    await client.call('SENTINEL', 'MONITOR', 'mymaster', '127.0.0.1', String(port), '2');
  };
  t.same((await store.snapshot()).servers, [await runIdOf(before)]);
  await third.kill();
  t.same((await store.snapshot()).servers, [await runIdOf(before)], 'two of three are enough');
  await second.kill();
  await t.rejects(store.snapshot(), isRefused, 'one of three is not enough, even without a contradiction');
  await second.restart();
  await until(async () => (await store.snapshot()).isWhole, 'two sentinels again');
  await point(second, after);
  await t.rejects(store.snapshot(), isRefused, 'one against one');
  await third.restart();
  await point(third, after);
  await point(first, after);
  await until(async () => (await store.snapshot()).isWhole, 'the connections are reopened');
  t.same((await store.snapshot()).servers, [await runIdOf(after)], 'they lead to the other server');
  await store.begin();
  t.equal(await before.client.get('mg:writer'), null);
  t.not(await after.client.get('mg:writer'), null);
});

t.test('a connection that is still connecting is not reopened', { skip: withoutRedis }, async (t) => {
  const server = await startRedis(t);
  const line = `sentinel monitor mymaster 127.0.0.1 ${server.port} 1`;
  const { port } = await startRedis(t, [line], ['--sentinel']);
  const part = { sentinels: [{ host: '127.0.0.1', port }], masterName: 'mymaster', commandTimeoutMilliseconds: 2_000 };
  const who = { url: 'redis://ignored:1', cluster: null, username: null, password: null, ca: null };
  const redis = connectRedis({ ...who, ...part }, () => undefined);
  t.teardown(() => {
    redis.disconnect();
  });
  reopen(redis);
  await until(async () => (await redis.echo('x')) === 'x', 'open');
  const { stream } = redis;
  reopen(redis);
  await until(async () => redis.stream !== stream && (await redis.echo('x')) === 'x', 'reopened');
  t.equal(await server.client.ping(), 'PONG');
});

t.test('a hung sentinel has no vote', { skip: withoutRedis }, async (t) => {
  const server = await startRedis(t);
  const line = `sentinel monitor mymaster 127.0.0.1 ${server.port} 1`;
  const [responds, hangs] = [await startRedis(t, [line], ['--sentinel']), await startRedis(t, [line], ['--sentinel'])];
  const ports = [responds.port, hangs.port, await freePort()];
  const store = open(t, 'redis://ignored:1', 'mg:', { sentinels: ports.map((port) => ({ host: '127.0.0.1', port })) });
  await connected(store);
  hangs.signal('SIGSTOP');
  t.teardown(() => {
    hangs.signal('SIGCONT');
  });
  await t.rejects(store.snapshot(), /no majority/);
  hangs.signal('SIGCONT');
  await until(async () => (await store.snapshot()).isWhole, 'the sentinel votes again');
});
