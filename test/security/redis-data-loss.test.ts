import { registryAuthor } from '../../src/registry/events/author.js';
import t, { type Test } from 'tap';
import { readBytes } from '../../src/adapters/redis/calls.js';
import { MissingRecords } from '../../src/adapters/redis/gateway/missing-records.js';
import type { Standing } from '../../src/adapters/redis/gateway/standing.js';
import { RecordNames } from '../../src/adapters/redis/record-names.js';
import { StoreUnseeded } from '../../src/adapters/redis/records-link.js';
import { QueryInbox } from '../../src/adapters/redis/registry/ask-inbox.js';
import { openRecordsStore } from '../../src/adapters/redis/registry/open-records-store.js';
import { noSeals, Seals } from '../../src/adapters/redis/seal.js';
import { ServerLink } from '../../src/adapters/redis/server/server-link.js';
import { lookupIdOf } from '../../src/gateway/api-key.js';
import { createKey, revokeKey } from '../../src/registry/keys/key-changes.js';
import { changeMerchant, createMerchant } from '../../src/registry/merchants/repository.js';
import { Projection } from '../../src/registry/projection/projection.js';
import { until as untilOnRedis } from '../adapters/redis-cluster.js';
import { startRedis, withoutRedis } from '../adapters/redis-server.js';
import { projectionFixture, withoutLock } from '../registry/projection-fixture.js';
import { registryOnRedis, until } from '../registry/registry-on-redis.js';

// Each test has its own servers, and mostly waits for them. So three tests run at the same time.
t.jobs = 3;

/**
 * A stand-in for the object that decides whether a gateway may serve requests. The gateway is enrolled, that is, the
 * registry allows it to use cached records.
 * @param vouchedBeat the newest heartbeat after which the registry knew that no record was missing
 */
const standing = (vouchedBeat: number): Standing =>
  ({
    ...{ filling: null, generation: 'r_1', last: { generation: 'r_1', revision: 1, replicas: 0, asks: true } },
    lease: { enrolled: true, asks: true, vouchedBeat, beats: 1 },
  }) as unknown as Standing;

const unknownId = (count: number): string => lookupIdOf(`svc_live_unknown_${count}`, null);

/** The decision about a key, once Redis has replied. On a busy machine a look-up can exceed its time limit. */
async function replyAbout(gateway: { ask(lookupId: string): Promise<string> }, id: string): Promise<string> {
  for (const end = performance.now() + 60_000; ;) {
    const reply = await gateway.ask(id);
    if (reply !== '503 Redis did not reply' || performance.now() > end) return reply;
  }
}

// Regression: after an eviction or a manual DEL, a valid key got "Invalid API Key" permanently.
t.test('a key whose record was deleted is accepted at once, cached or not', { skip: withoutRedis }, async (t) => {
  const { redis, start, insertKeys, gateway } = await registryOnRedis(t);
  const registry = await start();
  const ids = await insertKeys(registry, 120);
  await redis.client.del('mg:meta');
  const one = gateway('one');
  await until(async () => (await one.ask(ids[119] ?? '')) === 'accepted', 'all records are written');
  await one.enrolled();
  await until(async () => (await one.ask(ids[119] ?? '')) === 'accepted', 'the gateway caches what it reads');
  for (const id of ids.slice(0, 20)) t.equal(await one.ask(id), 'accepted');
  const names = ids.slice(0, 40).map((id) => `mg:key:${id}`);
  t.equal(await redis.client.del(...names, 'mg:merchant:m_0'), 41);
  const results = await Promise.all(ids.slice(0, 40).map((id) => one.ask(id)));
  t.same([...new Set(results)], ['accepted']);
  t.equal(await redis.client.exists(...names, 'mg:merchant:m_0'), 41, 'the records are written again');
  t.equal(await replyAbout(one, unknownId(1)), '401', 'a key that never existed is unknown');
});

t.test('a gateway that starts after a record was deleted detects the loss', { skip: withoutRedis }, async (t) => {
  const { redis, start, insertKeys, gateway } = await registryOnRedis(t);
  let registry = await start();
  const [id = '', other = ''] = await insertKeys(registry, 2);
  await redis.client.del('mg:meta');
  await until(async () => (await redis.client.exists(`mg:key:${id}`)) === 1, 'the record is written');
  await until(
    async () => (await redis.client.get('mg:meta'))?.includes('"version":1') === true,
    'the store is complete',
  );
  await registry.stop();
  await redis.client.del(`mg:key:${id}`);
  const one = gateway('one');
  await until(async () => (await one.ask(other)) === 'accepted', 'the other key is accepted');
  t.match(await replyAbout(one, id), /^503 Redis may have lost this record/, 'while the registry is unavailable');
  t.match(await one.ask(unknownId(1)), /^503/, 'an unknown key gets 503 as well');
  registry = await start();
  await until(async () => (await one.ask(id)) === 'accepted', 'the key is accepted once the registry is back');
  await until(
    async () => (await one.ask(unknownId(1))) === '401',
    'the unknown key gets 401 once no record is missing',
  );
});

t.test(
  'without a registry, unknown keys compared before stay 401 and keys deleted since are 503',
  { skip: withoutRedis },
  async (t) => {
    const { redis, start, insertKeys, gateway } = await registryOnRedis(t);
    const registry = await start();
    const ids = await insertKeys(registry, 10);
    await redis.client.del('mg:meta');
    const one = gateway('one');
    await until(async () => (await one.ask(ids[9] ?? '')) === 'accepted', 'all records are written');
    await one.enrolled();
    await until(
      async () => ((await redis.client.get('mg:grant:one')) ?? '').includes('"compared":true'),
      'the registry has compared the records',
    );
    const beat = async (): Promise<number> =>
      (JSON.parse((await redis.client.get('mg:gateway:one')) ?? '{}') as { beat?: number }).beat ?? 0;
    const before = await beat();
    await until(async () => (await beat()) > before + 2, 'heartbeats of the gateway have read this grant');
    await registry.stop();
    t.equal(await replyAbout(one, unknownId(1)), '401');
    await redis.client.del(`mg:key:${ids[0]}`, `mg:key:${ids[9]}`);
    t.match(
      await replyAbout(one, ids[0] ?? ''),
      /^503 Redis may have lost this record/,
      'a record that was not cached',
    );
    t.match(
      await replyAbout(one, ids[9] ?? ''),
      /^503 Redis may have lost this record/,
      'a record that was cached before',
    );
    t.equal(await replyAbout(one, unknownId(2)), '401');
  },
);

t.test('a key evicted from Redis is never reported as invalid', { skip: withoutRedis }, async (t) => {
  const { redis, start, insertKeys, gateway } = await registryOnRedis(t);
  const registry = await start();
  const ids = await insertKeys(registry, 2_000);
  await redis.client.del('mg:meta');
  const one = gateway('one');
  await until(async () => (await one.ask(ids[1_999] ?? '')) === 'accepted', 'all records are written');
  await one.enrolled();
  await redis.client.config('SET', 'maxmemory-policy', 'allkeys-random');
  const evict = async (): Promise<void> => {
    const used = Number(/^used_memory:(\d+)/m.exec(await redis.client.info('memory'))?.[1]);
    await redis.client.config('SET', 'maxmemory', String(used - 150_000));
    await redis.client.set('other', 'x');
    await redis.client.config('SET', 'maxmemory', '0');
  };
  await evict();
  const evicted = Number(/^evicted_keys:(\d+)/m.exec(await redis.client.info('stats'))?.[1]);
  t.ok(evicted > 20, `${evicted} keys were evicted`);
  const wrong: string[] = [];
  for (const end = Date.now() + 3_000; Date.now() < end;) {
    const results = await Promise.all(ids.slice(0, 500).map((id) => one.ask(id)));
    wrong.push(...results.filter((result) => result === '401'));
  }
  t.same(wrong, []);
  await until(
    async () => (await redis.client.exists(...ids.map((id) => `mg:key:${id}`))) === 2_000,
    'all records are there again',
  );
  // The record that marks the store as complete may have been evicted as well.
  await until(
    async () => [...new Set(await Promise.all(ids.map((id) => one.ask(id))))].join() === 'accepted',
    'all keys are accepted',
  );
});

// An attacker with write access to Redis could reply in place of the registry, and make a valid key invalid.
t.test('a registry reply counts only with the seal of its own query', async (t) => {
  const seals = new Seals([Buffer.alloc(32, 1)]);
  const reply = JSON.stringify({ generation: 'r_1', isPresent: false });
  const forgedReplies: Readonly<Record<string, (query: string) => string>> = {
    'without a seal': () => reply,
    'sealed with another secret': (query) => new Seals([Buffer.alloc(32, 2)]).seal(query, reply),
    'to another query': (query) => seals.seal(`${query}0`, reply),
    'of another generation': (query) => seals.seal(query, JSON.stringify({ generation: 'r_0', isPresent: false })),
  };
  const textOf = (replyTo: (query: string) => string): Promise<string | null> =>
    new MissingRecords({
      link: {
        receiveNotices: () => Promise.resolve(),
        write: () => Promise.resolve(),
        text: (name) => Promise.resolve(replyTo(name)),
      },
      reads: { text: () => Promise.resolve(null) },
      standing: standing(-1),
      ...{ names: new RecordNames('mg:'), instanceId: 'one', seals },
    }).text(`mg:key:${unknownId(1)}`);
  for (const [what, replyTo] of Object.entries(forgedReplies))
    await t.rejects(
      textOf(replyTo),
      { name: 'KeyStoreUnavailable', message: /did not reply to the query for the record/ },
      what,
    );
  t.equal(await textOf((query) => seals.seal(query, reply)), null);
});

// Redis sends replies over one connection and invalidation messages over another, so a reply may arrive first.
t.test('a missing record is trusted only when no invalidation was missed', async (t) => {
  const name = `mg:key:${unknownId(1)}`;
  for (const [what, happens] of [
    [
      'an invalidation message arrives after the reply',
      (missing: MissingRecords) => {
        missing.changed([name]);
        return Promise.resolve();
      },
    ],
    ['no invalidation messages arrive', () => Promise.reject(new Error('no invalidation messages arrive'))],
    ['the record has not changed', () => Promise.resolve()],
  ] as const) {
    const queries: string[] = [];
    const missing: MissingRecords = new MissingRecords({
      link: {
        receiveNotices: () => happens(missing),
        write: ({ name: query }) => Promise.resolve(void queries.push(query)),
        text: () => Promise.resolve(JSON.stringify({ generation: 'r_1', isPresent: false })),
      },
      reads: { text: () => Promise.resolve(null) },
      standing: standing(1),
      ...{ names: new RecordNames('mg:'), instanceId: 'one', seals: noSeals },
    });
    t.equal(await missing.text(name), null);
    t.equal(queries.length, what === 'the record has not changed' ? 0 : 1, what);
  }
});

// Regression: a query that Redis rejected ended as an internal error, although the cached record could have been used.
t.test('a query that Redis rejects makes the key store unavailable', async (t) => {
  const reject = (): Promise<never> =>
    Promise.reject(new Error("OOM command not allowed when used memory > 'maxmemory'."));
  const link = {
    receiveNotices: () => Promise.resolve(),
    write: () => Promise.resolve(),
    text: () => Promise.resolve('asked'),
  };
  for (const change of [{ write: reject }, { text: reject }]) {
    const missing = new MissingRecords({
      ...{ link: { ...link, ...change }, reads: { text: () => Promise.resolve(null) } },
      standing: standing(-1),
      ...{ names: new RecordNames('mg:'), instanceId: 'one', seals: noSeals },
    });
    await t.rejects(missing.text(`mg:key:${unknownId(1)}`), { name: 'KeyStoreUnavailable' });
  }
});

t.test('foreign data under the name of the query stream does not block replies', { skip: withoutRedis }, async (t) => {
  const { redis, start, insertKeys, gateway } = await registryOnRedis(t);
  const registry = await start();
  const [id = ''] = await insertKeys(registry, 1);
  await redis.client.del('mg:meta');
  await until(
    async () => (await redis.client.get('mg:meta'))?.includes('"version":1') === true,
    'the store is complete',
  );
  const pipeline = redis.client.pipeline();
  for (let number = 0; number < 3_000; number += 1)
    pipeline.set(`mg:ask:other:${number}:key:${unknownId(number)}`, 'asked');
  for (const name of ['mg:ask:', 'mg:ask:one:1:key:x', `mg:ask:one:2:${'x'.repeat(100_000)}`])
    pipeline.lpush(name, 'asked');
  pipeline.set('mg:ask:one:3:merchant:', 'asked').set('mg:ask:../..:4:key:a', 'asked').del(`mg:key:${id}`);
  await pipeline.exec();
  const one = gateway('one');
  await until(async () => (await one.ask(id)) === 'accepted', 'the key is accepted');
  await until(async () => (await one.ask(unknownId(9_999))) === '401', 'an unknown key gets 401');

  await registry.stop(); // it could read and delete the query first
  await redis.client.set('mg:ask:two:1:key:a', 'asked');
  const { client } = redis;
  const source = { read: readBytes.bind(null, client), write: () => Promise.resolve() };
  const inbox = new QueryInbox('mg:ask:', noSeals, source);
  inbox.received(['mg:ask:', 'mg:ask:one:1:key:x', 'mg:ask:two:1:key:a']);
  await until(
    () => inbox.take(10).some(({ record }) => record === 'key:a'),
    'a query is read next to a value that is not a string',
  );
});

// Redis is flushed, and a gateway has not yet received the invalidation message. Every key would seem unknown, so an
// outage would look like an invalid key.
t.test('a missing record is trusted only in a seeded store', { skip: withoutRedis }, async (t) => {
  const { client, url } = await startRedis(t);
  const names = new RecordNames('mg:');
  const ignore = (): void => undefined;
  const callbacks = { onChanged: ignore, onEverythingChanged: ignore, onListening: ignore, onDisconnected: ignore };
  const link = new ServerLink(
    {
      ...{ url, sentinels: null, masterName: '', cluster: null, username: null },
      password: null,
      ca: null,
      commandTimeoutMilliseconds: 2_000,
    },
    names,
    { ...callbacks, onReady: () => undefined },
    () => undefined,
  );
  t.teardown(() => {
    link.close();
  });
  await untilOnRedis(() => Promise.resolve(link.connected), 'the store can be queried');
  const read = (id: string) => link.read(names.key(id), 'ours');
  const seed = (generation: string) =>
    client.set(names.meta, JSON.stringify({ version: 1, generation, projectedAt: '2026-01-01T00:00:00.000Z' }));
  await seed('ours');
  await client.set(names.key('known'), '{}');
  t.equal(await read('known'), '{}');
  t.equal(await read('unknown'), null);
  await client.del(names.meta);
  await t.rejects(read('unknown'), StoreUnseeded);
  await seed('of others');
  await t.rejects(read('unknown'), StoreUnseeded);
  await client.set(names.meta, '{"version":2}');
  await t.rejects(read('unknown'), StoreUnseeded);
  await seed('ours');
  t.equal(await read('unknown'), null);
});

const nowhere = { sentinels: null, masterName: '', cluster: null, username: null, password: null, ca: null };

let generations = 0;
const common = {
  session: withoutLock,
  longestLifetimeMilliseconds: 31_000,
  newGeneration: () => `begun-${(generations += 1)}`,
};

/**
 * Creates a registry's projection, which copies the records from SQL to a Redis. To simulate a failover, a test saves
 * and restores all data of Redis.
 */
async function start(t: Test) {
  const { client, url } = await startRedis(t);
  const store = openRecordsStore({ ...nowhere, url, commandTimeoutMilliseconds: 2_000 }, 'mg:', {
    onLost: () => undefined,
    onFound: () => undefined,
  });
  t.teardown(() => store.close());
  // The store has two connections. If the second one opened during a run of the projection, the run would take it for a
  // reconnect and fail.
  await untilOnRedis(async () => (await store.gateways([])).isFresh, 'both connections of the store are open');
  const { context, database, time } = await projectionFixture(t, 'sqlite::memory:');
  const projection = new Projection({
    ...common,
    database,
    store,
    clock: time,
    monotonic: time.monotonic,
    holder: 'one',
  });
  const save = async (): Promise<Map<string, string>> => {
    const names = await client.keys('*');
    const texts = await client.mget(names);
    return new Map(names.map((name, index) => [name, texts[index] ?? '']));
  };
  const restore = async (saved: ReadonlyMap<string, string>): Promise<void> => {
    await client.flushall();
    for (const [name, text] of saved) await client.set(name, text);
  };
  const { id } = await createMerchant(context, registryAuthor, { name: 'x' });
  const statuses = async (): Promise<string[]> => {
    const keys = [...(await save())].filter(([name]) => name.startsWith('mg:key:'));
    return keys.map(([, text]) => (JSON.parse(text) as { status: string }).status);
  };
  return { client, context, database, id, projection, restore, save, statuses, store };
}

// Regression: during a failover a replica that lacked a confirmed revocation became the master while the next change
// was written. That change was published there, so no loss was visible, and the revoked key worked again permanently.
for (const moment of ['before it is written', 'when it is written'] as const) {
  t.test(`a store replaced during a change, ${moment}, is detected`, { skip: withoutRedis }, async (t) => {
    const { context, id, projection, restore, save, statuses, store } = await start(t);
    const { keyId } = await createKey(context, registryAuthor, id, { environment: 'live' });
    await projection.run();
    const replica = await save();
    await revokeKey(context, registryAuthor, keyId);
    await projection.run();
    t.same(await statuses(), ['REVOKED']);

    await changeMerchant(context, registryAuthor, id, { name: 'y' });
    const write = store.write.bind(store);
    store.write = async (...args) => {
      store.write = write;
      if (moment === 'before it is written') await restore(replica);
      const result = await write(...args);
      await restore(replica);
      return result;
    };
    await t.rejects(projection.run(), /Redis was replaced or emptied/);
    t.same(await statuses(), ['ACTIVE']);
    t.equal((await store.snapshot()).revision, 2, 'no revision is published whose change is missing');
    await projection.run();
    t.same(await statuses(), ['REVOKED']);
    t.equal((await store.snapshot()).revision, await context.revision());
  });
}

// Regression: Redis was flushed again during a full rewrite. The registry then marked it as complete, although it had
// only the records written since the flush. All other keys were permanently unknown.
t.test('a store flushed during a full rewrite is not marked complete', { skip: withoutRedis }, async (t) => {
  const { client, context, id, projection, statuses, store } = await start(t);
  for (let count = 0; count < 3; count += 1) await createKey(context, registryAuthor, id, { environment: 'live' });
  const rewrite = store.rewrite.bind(store);
  let pages = 0;
  store.rewrite = async (...args) => {
    if ((pages += 1) === 2) await client.flushall();
    return rewrite(...args);
  };
  await t.rejects(projection.run(), /Redis was replaced or emptied/);
  t.equal((await store.snapshot()).meta, null);
  await projection.run();
  t.equal((await statuses()).length, 3);
  t.not((await store.snapshot()).meta, null);

  const complete = store.complete.bind(store);
  await client.flushall();
  store.complete = async (...args) => {
    await client.flushall();
    return complete(...args);
  };
  await t.rejects(projection.run(), /Redis was replaced or emptied/);
  t.equal((await store.snapshot()).meta, null);
});

t.test(
  'a registry publishes nothing once another registry, or the same one again, has begun a projection',
  { skip: withoutRedis },
  async (t) => {
    const { client, store } = await start(t);
    await store.begin();
    await store.write([{ name: 'key:1', value: { revision: 1 } }], 1, 'g');
    await store.publish({ revision: 1, change: 'a' });
    await client.set('mg:writer', 'another:0');
    await t.rejects(store.publish({ revision: 2, change: 'b' }), /the store changed unexpectedly/);
    await t.rejects(store.write([{ name: 'key:1', value: { revision: 2 } }], 2, 'g'), /the store changed unexpectedly/);
    t.equal((await store.snapshot()).revision, 1);
    await store.begin();
    await store.publish({ revision: 2, change: 'b' });
    t.equal((await store.snapshot()).revision, 2);
  },
);

// Regression: a registry on a wrong database made itself the writer in Redis before it checked the store. So each run
// of the registry on the right database failed.
t.test('a registry on another database writes nothing', { skip: withoutRedis }, async (t) => {
  const { context, id, projection, save, store } = await start(t);
  for (let count = 0; count < 3; count += 1) await createKey(context, registryAuthor, id, { environment: 'live' });
  await projection.run();
  const before = await save();
  const { database, time } = await projectionFixture(t, 'sqlite::memory:');
  const wrong = new Projection({ ...common, database, store, clock: time, monotonic: time.monotonic, holder: 'wrong' });
  await database.updateTable('revision').set({ generation: 'of its own' }).execute();
  for (let count = 0; count < 2; count += 1) await t.rejects(wrong.run(), /the records of another database/);
  t.same(await save(), before);
});

// An operator deletes the meta record to request a full rewrite. Regression: a malformed meta record counted as
// deleted. So a registry on another database removed every record.
t.test(
  'a malformed meta record does not let a registry on another database write',
  { skip: withoutRedis },
  async (t) => {
    const { client, context, id, projection, save, store } = await start(t);
    for (let count = 0; count < 3; count += 1) await createKey(context, registryAuthor, id, { environment: 'live' });
    await projection.run();
    const { database, time } = await projectionFixture(t, 'sqlite::memory:');
    const wrong = new Projection({
      ...common,
      database,
      store,
      clock: time,
      monotonic: time.monotonic,
      holder: 'wrong',
    });
    for (const damaged of ['', '{', '[]', '{"version":2,"generation":"generation-0"}']) {
      await client.set('mg:meta', damaged);
      const before = await save();
      await t.rejects(wrong.run(), /another registry: of 4 records there, this database has 0/, damaged);
      t.same(await save(), before);
      await projection.run();
      t.match(
        (await store.snapshot()).meta,
        { version: 1, generation: String },
        'its own registry rewrites the meta record',
      );
      t.same([...(await save()).keys()].sort(), [...before.keys()].sort());
    }
    await client.del('mg:meta');
    await wrong.run();
    t.same(
      [...(await save()).keys()].sort(),
      ['mg:change', 'mg:meta', 'mg:revision', 'mg:writer'],
      'without a meta record, a registry takes over the store',
    );
  },
);
