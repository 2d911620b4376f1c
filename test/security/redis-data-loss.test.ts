import { setTimeout as wait } from 'node:timers/promises';
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

/** An enrolled gateway, and the newest beat after which the registry knew that no record was missing. */
const standing = (vouchedBeat: number): Standing =>
  ({
    ...{ filling: null, generation: 'r_1', last: { generation: 'r_1', revision: 1, replicas: 0, asks: true } },
    lease: { enrolled: true, asks: true, vouchedBeat, beats: 1 },
  }) as unknown as Standing;

const unknown = (count: number): string => lookupIdOf(`svc_live_unknown_${count}`, null);

// After an eviction, or a DEL by hand, a good key was "Invalid API Key" without end.
t.test('a key whose record was deleted is accepted at once, cached or not', { skip: withoutRedis }, async (t) => {
  const { redis, start, insertKeys, gateway } = await registryOnRedis(t);
  const registry = await start();
  const ids = await insertKeys(registry, 120);
  await redis.client.del('mg:meta');
  const one = gateway('one');
  await until(async () => (await one.ask(ids[119] ?? '')) === 'accepted', 'all are written');
  await one.enrolled();
  await until(async () => (await one.ask(ids[119] ?? '')) === 'accepted', 'it holds what it reads');
  for (const id of ids.slice(0, 20)) t.equal(await one.ask(id), 'accepted');
  const names = ids.slice(0, 40).map((id) => `mg:key:${id}`);
  t.equal(await redis.client.del(...names, 'mg:merchant:m_0'), 41);
  const answers = await Promise.all(ids.slice(0, 40).map((id) => one.ask(id)));
  t.same([...new Set(answers)], ['accepted']);
  t.equal(await redis.client.exists(...names, 'mg:merchant:m_0'), 41, 'they are written again');
  t.equal(await one.ask(unknown(1)), '401', 'one that never was is unknown');
});

t.test('a gateway that starts after a record was deleted detects the loss', { skip: withoutRedis }, async (t) => {
  const { redis, start, insertKeys, gateway } = await registryOnRedis(t);
  let registry = await start();
  const [id = '', other = ''] = await insertKeys(registry, 2);
  await redis.client.del('mg:meta');
  await until(async () => (await redis.client.exists(`mg:key:${id}`)) === 1, 'written');
  await until(async () => (await redis.client.get('mg:meta'))?.includes('"version":1') === true, 'complete');
  await registry.stop();
  await redis.client.del(`mg:key:${id}`);
  const one = gateway('one');
  await until(async () => (await one.ask(other)) === 'accepted', 'it is there');
  t.match(await one.ask(id), /^503 records may be missing/, 'while the registry is away');
  t.match(await one.ask(unknown(1)), /^503/, 'an unknown key as well');
  registry = await start();
  await until(async () => (await one.ask(id)) === 'accepted', 'the registry is back');
  await until(async () => (await one.ask(unknown(1))) === '401', 'nothing is missing');
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
    await until(async () => (await one.ask(ids[9] ?? '')) === 'accepted', 'all are written');
    await one.enrolled();
    await until(async () => ((await redis.client.get('mg:grant:one')) ?? '').includes('"compared":true'), 'compared');
    await wait(1_000);
    await registry.stop();
    t.equal(await one.ask(unknown(1)), '401');
    await redis.client.del(`mg:key:${ids[0]}`, `mg:key:${ids[9]}`);
    t.match(await one.ask(ids[0] ?? ''), /^503 records may be missing/, 'not held');
    t.match(await one.ask(ids[9] ?? ''), /^503 records may be missing/, 'held before');
    t.equal(await one.ask(unknown(2)), '401');
  },
);

t.test('a key evicted from Redis is never reported as invalid', { skip: withoutRedis }, async (t) => {
  const { redis, start, insertKeys, gateway } = await registryOnRedis(t);
  const registry = await start();
  const ids = await insertKeys(registry, 2_000);
  await redis.client.del('mg:meta');
  const one = gateway('one');
  await until(async () => (await one.ask(ids[1_999] ?? '')) === 'accepted', 'all are written');
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
  t.ok(evicted > 20, `${evicted} were evicted`);
  const wrong: string[] = [];
  for (const end = Date.now() + 3_000; Date.now() < end;) {
    const answers = await Promise.all(ids.slice(0, 500).map((id) => one.ask(id)));
    wrong.push(...answers.filter((answer) => answer === '401'));
  }
  t.same(wrong, []);
  await until(
    async () => (await redis.client.exists(...ids.map((id) => `mg:key:${id}`))) === 2_000,
    'all are there again',
  );
  // What says that the store is complete may have been evicted as well.
  await until(
    async () => [...new Set(await Promise.all(ids.map((id) => one.ask(id))))].join() === 'accepted',
    'all are accepted',
  );
});

// Whoever can write to Redis could answer in the registry's place, and make a good key invalid.
t.test('a registry reply counts only with the seal of its own query', async (t) => {
  const seals = new Seals([Buffer.alloc(32, 1)]);
  const answer = JSON.stringify({ generation: 'r_1', isPresent: false });
  const answers: Readonly<Record<string, (question: string) => string>> = {
    unsealed: () => answer,
    'sealed by another secret': (question) => new Seals([Buffer.alloc(32, 2)]).seal(question, answer),
    'of another question': (question) => seals.seal(`${question}0`, answer),
    'of another generation': (question) =>
      seals.seal(question, JSON.stringify({ generation: 'r_0', isPresent: false })),
  };
  const textOf = (answerTo: (question: string) => string): Promise<string | null> =>
    new MissingRecords({
      link: {
        heard: () => Promise.resolve(),
        write: () => Promise.resolve(),
        text: (name) => Promise.resolve(answerTo(name)),
      },
      reads: { text: () => Promise.resolve(null) },
      standing: standing(-1),
      ...{ names: new RecordNames('mg:'), instanceId: 'one', seals },
    }).text(`mg:key:${unknown(1)}`);
  for (const [what, answerTo] of Object.entries(answers))
    await t.rejects(textOf(answerTo), { name: 'KeyStoreUnavailable', message: /has not replied whether/ }, what);
  t.equal(await textOf((question) => seals.seal(question, answer)), null);
});

// Redis answers over one connection and sends its notices over another: the answer may come first.
t.test('a missing record is trusted only when no invalidation was missed', async (t) => {
  const name = `mg:key:${unknown(1)}`;
  for (const [what, happens] of [
    [
      'a notice comes behind the answer',
      (missing: MissingRecords) => {
        missing.changed([name]);
        return Promise.resolve();
      },
    ],
    ['nothing can be heard', () => Promise.reject(new Error('nothing can be heard'))],
    ['no notice comes', () => Promise.resolve()],
  ] as const) {
    const asked: string[] = [];
    const missing: MissingRecords = new MissingRecords({
      link: {
        heard: () => happens(missing),
        write: ({ name: question }) => Promise.resolve(void asked.push(question)),
        text: () => Promise.resolve(JSON.stringify({ generation: 'r_1', isPresent: false })),
      },
      reads: { text: () => Promise.resolve(null) },
      standing: standing(1),
      ...{ names: new RecordNames('mg:'), instanceId: 'one', seals: noSeals },
    });
    t.equal(await missing.text(name), null);
    t.equal(asked.length, what === 'no notice comes' ? 0 : 1, what);
  }
});

// A question that Redis refused ended as an internal error, and whoever has the key could have been served what is held.
t.test('a query that Redis rejects makes the key store unavailable', async (t) => {
  const refused = (): Promise<never> =>
    Promise.reject(new Error("OOM command not allowed when used memory > 'maxmemory'."));
  const link = { heard: () => Promise.resolve(), write: () => Promise.resolve(), text: () => Promise.resolve('asked') };
  for (const change of [{ write: refused }, { text: refused }]) {
    const missing = new MissingRecords({
      ...{ link: { ...link, ...change }, reads: { text: () => Promise.resolve(null) } },
      standing: standing(-1),
      ...{ names: new RecordNames('mg:'), instanceId: 'one', seals: noSeals },
    });
    await t.rejects(missing.text(`mg:key:${unknown(1)}`), { name: 'KeyStoreUnavailable' });
  }
});

t.test('foreign data under the name of the query stream does not block replies', { skip: withoutRedis }, async (t) => {
  const { redis, start, insertKeys, gateway } = await registryOnRedis(t);
  const registry = await start();
  const [id = ''] = await insertKeys(registry, 1);
  await redis.client.del('mg:meta');
  await until(async () => (await redis.client.get('mg:meta'))?.includes('"version":1') === true, 'complete');
  const pipeline = redis.client.pipeline();
  for (let number = 0; number < 3_000; number += 1)
    pipeline.set(`mg:ask:other:${number}:key:${unknown(number)}`, 'asked');
  for (const name of ['mg:ask:', 'mg:ask:one:1:key:x', `mg:ask:one:2:${'x'.repeat(100_000)}`])
    pipeline.lpush(name, 'asked');
  pipeline.set('mg:ask:one:3:merchant:', 'asked').set('mg:ask:../..:4:key:a', 'asked').del(`mg:key:${id}`);
  await pipeline.exec();
  const one = gateway('one');
  await until(async () => (await one.ask(id)) === 'accepted', 'a key is accepted');
  await until(async () => (await one.ask(unknown(9_999))) === '401', 'an unknown key is unknown');

  await redis.client.set('mg:ask:two:1:key:a', 'asked');
  const { client } = redis;
  const source = { read: readBytes.bind(null, client), write: () => Promise.resolve() };
  const inbox = new QueryInbox('mg:ask:', noSeals, source);
  inbox.heard(['mg:ask:', 'mg:ask:one:1:key:x', 'mg:ask:two:1:key:a']);
  await until(() => inbox.take(10).some(({ record }) => record === 'key:a'), 'read beside what is no text');
});

// Between a flush and the moment at which a gateway hears of it, every key would be unknown: an outage that looks like a bad key.
t.test('a missing record is trusted only in a seeded store', { skip: withoutRedis }, async (t) => {
  const { client, url } = await startRedis(t);
  const names = new RecordNames('mg:');
  const nothing = (): void => undefined;
  const untold = { onChanged: nothing, onEverythingChanged: nothing, onListening: nothing, onDeaf: nothing };
  const link = new ServerLink(
    {
      ...{ url, sentinels: null, masterName: '', cluster: null, username: null },
      password: null,
      ca: null,
      commandTimeoutMilliseconds: 2_000,
    },
    names,
    { ...untold, onReady: () => undefined },
    () => undefined,
  );
  t.teardown(() => {
    link.close();
  });
  await untilOnRedis(() => Promise.resolve(link.hearing), 'the store can be asked');
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

/** A registry's projection into a Redis, of which all that it holds can be taken and put back, as another server would have it. */
async function start(t: Test) {
  const { client, url } = await startRedis(t);
  const store = openRecordsStore({ ...nowhere, url, commandTimeoutMilliseconds: 2_000 }, 'mg:', {
    onLost: () => undefined,
    onFound: () => undefined,
  });
  t.teardown(() => store.close());
  await untilOnRedis(async () => (await store.look()).meta === null, 'the store can be asked');
  const { context, database, time } = await projectionFixture(t, 'sqlite::memory:');
  const projection = new Projection({
    ...common,
    database,
    store,
    clock: time,
    monotonic: time.monotonic,
    holder: 'one',
  });
  const take = async (): Promise<Map<string, string>> => {
    const names = await client.keys('*');
    const texts = await client.mget(names);
    return new Map(names.map((name, index) => [name, texts[index] ?? '']));
  };
  const putBack = async (held: ReadonlyMap<string, string>): Promise<void> => {
    await client.flushall();
    for (const [name, text] of held) await client.set(name, text);
  };
  const { id } = await createMerchant(context, 'test', { name: 'x' });
  const statuses = async (): Promise<string[]> => {
    const keys = [...(await take())].filter(([name]) => name.startsWith('mg:key:'));
    return keys.map(([, text]) => (JSON.parse(text) as { status: string }).status);
  };
  return { client, context, database, id, projection, putBack, statuses, store, take };
}

// A replica that lacked a confirmed revocation took the master's place while the next change was written. That one was published
// there, so that nothing seemed to be lost, and the key worked again for good.
for (const moment of ['before it is written', 'when it is written'] as const) {
  t.test(`a store replaced during a change, ${moment}, is detected`, { skip: withoutRedis }, async (t) => {
    const { context, id, projection, putBack, statuses, store, take } = await start(t);
    const { keyId } = await createKey(context, 'test', id, { environment: 'live' });
    await projection.run();
    const replica = await take();
    await revokeKey(context, 'test', keyId);
    await projection.run();
    t.same(await statuses(), ['REVOKED']);

    await changeMerchant(context, 'test', id, { name: 'y' });
    const write = store.write.bind(store);
    store.write = async (...args) => {
      store.write = write;
      if (moment === 'before it is written') await putBack(replica);
      const stayed = await write(...args);
      await putBack(replica);
      return stayed;
    };
    await t.rejects(projection.run(), /the store was replaced or emptied/);
    t.same(await statuses(), ['ACTIVE']);
    t.equal((await store.look()).revision, 2, 'nothing is published that is not there');
    await projection.run();
    t.same(await statuses(), ['REVOKED']);
    t.equal((await store.look()).revision, await context.revision());
  });
}

// Redis was emptied once more while everything was written anew: it was said to be complete with what had been written since,
// and every other key was unknown, for good.
t.test('a store flushed during a full rewrite is not marked complete', { skip: withoutRedis }, async (t) => {
  const { client, context, id, projection, statuses, store } = await start(t);
  for (let count = 0; count < 3; count += 1) await createKey(context, 'test', id, { environment: 'live' });
  const rewrite = store.rewrite.bind(store);
  let pages = 0;
  store.rewrite = async (...args) => {
    if ((pages += 1) === 2) await client.flushall();
    return rewrite(...args);
  };
  await t.rejects(projection.run(), /the store was replaced or emptied/);
  t.equal((await store.look()).meta, null);
  await projection.run();
  t.equal((await statuses()).length, 3);
  t.not((await store.look()).meta, null);

  const complete = store.complete.bind(store);
  await client.flushall();
  store.complete = async (...args) => {
    await client.flushall();
    return complete(...args);
  };
  await t.rejects(projection.run(), /the store was replaced or emptied/);
  t.equal((await store.look()).meta, null);
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
    await t.rejects(store.publish({ revision: 2, change: 'b' }), /the writer mark has changed/);
    await t.rejects(store.write([{ name: 'key:1', value: { revision: 2 } }], 2, 'g'), /the writer mark has changed/);
    t.equal((await store.look()).revision, 1);
    await store.begin();
    await store.publish({ revision: 2, change: 'b' });
    t.equal((await store.look()).revision, 2);
  },
);

// It put its mark before it looked, and ended each pass of the right one.
t.test('a registry on another database writes nothing', { skip: withoutRedis }, async (t) => {
  const { context, id, projection, store, take } = await start(t);
  for (let count = 0; count < 3; count += 1) await createKey(context, 'test', id, { environment: 'live' });
  await projection.run();
  const before = await take();
  const { database, time } = await projectionFixture(t, 'sqlite::memory:');
  const wrong = new Projection({ ...common, database, store, clock: time, monotonic: time.monotonic, holder: 'wrong' });
  await database.updateTable('revision').set({ generation: 'of its own' }).execute();
  for (let count = 0; count < 2; count += 1) await t.rejects(wrong.run(), /that of another database/);
  t.same(await take(), before);
});

// A damaged meta record counted as none, which is how an operator asks that everything be written anew: every record was removed.
t.test(
  'a malformed meta record does not let a registry on another database write',
  { skip: withoutRedis },
  async (t) => {
    const { client, context, id, projection, store, take } = await start(t);
    for (let count = 0; count < 3; count += 1) await createKey(context, 'test', id, { environment: 'live' });
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
      const before = await take();
      await t.rejects(wrong.run(), /another registry's: of its 4 records this database knows 0/, damaged);
      t.same(await take(), before);
      await projection.run();
      t.match((await store.look()).meta, { version: 1, generation: String }, 'that of its own store is written again');
      t.same([...(await take()).keys()].sort(), [...before.keys()].sort());
    }
    await client.del('mg:meta');
    await wrong.run();
    t.same(
      [...(await take()).keys()].sort(),
      ['mg:change', 'mg:meta', 'mg:revision', 'mg:writer'],
      'whoever wants that takes it away',
    );
  },
);
