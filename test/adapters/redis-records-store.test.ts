import t from 'tap';
import { GatewayDirectory } from '../../src/adapters/redis/gateway-directory.js';
import { openRecordsStore } from '../../src/adapters/redis/open-records-store.js';
import type { OpenedRecordsStore } from '../../src/adapters/redis/open-records-store.js';
import { startRedis, withoutRedis } from './redis-server.js';
import type { RedisServer } from './redis-server.js';

function open(t: { teardown(handler: () => unknown): void }, server: RedisServer, prefix = 'mg:'): OpenedRecordsStore {
  const address = {
    ...{ url: server.url, sentinels: null, masterName: '', cluster: null, username: null, password: null, ca: null },
    commandTimeoutMilliseconds: 2_000,
  };
  const store = openRecordsStore(address, prefix, { onLost: () => undefined, onFound: () => undefined });
  t.teardown(() => store.close());
  return store;
}

/** A store that is connected: nothing is queued while it is not. */
async function connected(store: OpenedRecordsStore): Promise<OpenedRecordsStore> {
  for (;;) {
    try {
      await store.readMeta();
      return store;
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  }
}

const gateway = { revision: 3, environment: 'live', host: 'h', startedAt: '2026-01-01T00:00:00.000Z' } as const;

t.test(
  'records, meta and revision are written under the prefix, as the contract names them',
  { skip: withoutRedis },
  async (t) => {
    const server = await startRedis(t);
    const store = await connected(open(t, server, 'a*[b]:'));
    t.equal(await store.readMeta(), null);
    t.equal(await store.readRevision(), 0);
    const meta = { version: 1, generation: 'g', projectedAt: '2026-01-01T00:00:00.000Z' } as const;
    await store.begin();
    await store.writeMeta(meta, 7);
    t.same(await store.readMeta(), meta);
    await store.publishRevision(7);
    t.equal(await store.readRevision(), 7);
    const many = Array.from({ length: 1234 }, (_, index) => ({ name: `key:${index}`, value: { index } }));
    await store.write([...many, { name: 'merchant:m', value: { name: 'x' } }], 7);
    await store.write([{ name: 'key:0', value: null }], 8);
    t.equal(await server.client.get('a*[b]:key:1'), '{"index":1}');
    t.equal(await server.client.get('a*[b]:key:0'), null);
    await server.client.set('axb:key:foreign', '1');
    const names = new Set<string>();
    for await (const name of store.names('key:')) names.add(name);
    t.equal(names.size, 1233);
    t.ok(
      [...names].every((name) => /^key:\d+$/.test(name)),
      'and none of another prefix',
    );
    for (const damaged of ['', '{', '[]', '{"version":2}']) {
      await server.client.set('a*[b]:meta', damaged);
      t.same(await store.readMeta(), { generation: null }, `${damaged}: there is one, of nobody that is known`);
    }
    for (const damaged of ['x', '-1', '1.5', String(2 ** 51)]) {
      await server.client.set('a*[b]:revision', damaged);
      t.equal(await store.readRevision(), 0, damaged);
    }
    // The registry writes everything anew over what is damaged; a failure here would have it wait for a Redis that is well.
    for (const name of ['meta', 'revision']) {
      await server.client.del(`a*[b]:${name}`);
      await server.client.rpush(`a*[b]:${name}`, 'a list');
    }
    t.same(await store.readMeta(), { generation: null });
    t.equal(await store.readRevision(), 0);
  },
);

t.test(
  'every gateway that lives is found, as soon as it has acknowledged, and none that is gone',
  { skip: withoutRedis },
  async (t) => {
    const server = await startRedis(t);
    const store = await connected(open(t, server));
    const put = (instanceId: string, more: object = {}) =>
      server.client.set(`mg:gateway:${instanceId}`, JSON.stringify({ instanceId, ...gateway, ...more }), 'PX', 60_000);
    const found = async () => (await store.gateways()).map(({ instanceId }) => instanceId).toSorted();
    await put('before');
    t.same(await found(), ['before']);
    for (let count = 0; count < 50; count += 1) {
      await put(`new-${count}`);
      t.ok((await found()).includes(`new-${count}`), 'one that has just come is not overlooked');
    }
    await server.client.del('mg:gateway:before');
    t.notOk((await found()).includes('before'));
    await put('new-1', { revision: 9 });
    t.match(
      (await store.gateways()).find(({ instanceId }) => instanceId === 'new-1'),
      { revision: 9 },
    );
    await server.client.flushall();
    t.same(await found(), []);

    for (const damaged of [
      { revision: -1 },
      { revision: 2 ** 52 },
      { revision: '3' },
      { environment: 'x' },
      { host: 7 },
    ]) {
      await put('damaged', damaged);
      t.same(await found(), [], JSON.stringify(damaged));
    }
    await server.client.set('mg:gateway:damaged', '{');
    t.same(await found(), []);
    await put('late');
    await server.client.call('CLIENT', 'KILL', 'TYPE', 'pubsub');
    await put('unheard');
    for (;;) if ((await found().catch(() => [])).join() === 'late,unheard') break;
    t.pass('what was written while nothing could be heard is found as well');
  },
);

t.test('one that acknowledges while it is found to be gone is not overlooked the next time', async (t) => {
  let stored: string | null = null;
  const directory: GatewayDirectory = new GatewayDirectory({
    hearing: true,
    epoch: 1,
    catchUp: () => Promise.resolve(),
    names: async function* () {
      yield 'mg:gateway:g';
      await Promise.resolve();
    },
    read: (names) => {
      const texts = names.map(() => stored);
      // Its notice comes over another connection than the answer, and may be there first.
      stored = JSON.stringify({ instanceId: 'g', ...gateway });
      directory.heard(['mg:gateway:g']);
      return Promise.resolve(texts);
    },
  });
  t.same(await directory.list(), []);
  t.match(await directory.list(), [{ instanceId: 'g' }]);
});

t.test('a gateway is silent that has missed several acknowledgements, as long as nothing was missed', async (t) => {
  let now = 0;
  const put = (instanceId: string) => JSON.stringify({ instanceId, ...gateway });
  const source = {
    ...{ hearing: true, epoch: 1 },
    catchUp: () => Promise.resolve(),
    names: async function* () {
      yield 'mg:gateway:a';
      yield 'mg:gateway:b';
      await Promise.resolve();
    },
    read: (names: readonly string[]) => Promise.resolve(names.map((name) => put(name.slice('mg:gateway:'.length)))),
  };
  const directory = new GatewayDirectory(source, () => now);
  const silent = async () =>
    (await directory.list()).filter(({ isSilent }) => isSilent === true).map(({ instanceId }) => instanceId);
  t.same(await silent(), [], 'nothing is known of its silence before it was found');
  now = 1_999;
  directory.heard(['mg:gateway:a']);
  t.same(await silent(), []);
  now = 2_000;
  t.same(await silent(), ['b']);
  directory.heard(['mg:gateway:b']);
  t.same(await silent(), []);
  now = 10_000;
  t.same(await silent(), ['a', 'b']);
  directory.missed();
  t.same(await silent(), [], 'they may have been heard of meanwhile');
  source.hearing = false;
  directory.missed();
  now = 20_000;
  t.same(await silent(), [], 'nobody is silent to one who hears nothing');
});

t.test('a write that Redis refuses is a failure, not a success', { skip: withoutRedis }, async (t) => {
  const server = await startRedis(t);
  const store = await connected(open(t, server));
  await store.begin();
  await server.client.config('SET', 'maxmemory', '1');
  await t.rejects(store.publishRevision(1), /OOM/);
  await t.rejects(store.write([{ name: 'key:1', value: { a: 1 } }], 1), /OOM/);
  await t.rejects(store.begin(), /OOM/);
  await server.kill();
  await t.rejects(store.gateways());
  await t.rejects(store.write([{ name: 'key:1', value: null }], 1));
});
