import t from 'tap';
import type { Test } from 'tap';
import { openRecordsStore } from '../../src/adapters/redis/registry/open-records-store.js';
import { Projection } from '../../src/registry/projection/projection.js';
import { createKey, revokeKey } from '../../src/registry/keys/key-changes.js';
import { changeMerchant, createMerchant } from '../../src/registry/merchants/repository.js';
import { until } from '../adapters/redis-cluster.js';
import { startRedis, withoutRedis } from '../adapters/redis-server.js';
import { projectionFixture, withoutLock } from '../registry/projection-fixture.js';

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
  await until(async () => (await store.look()).meta === null, 'the store can be asked');
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
  t.test(`a store that is replaced under a change, ${moment}, is found out`, { skip: withoutRedis }, async (t) => {
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
    await t.rejects(projection.run(), /not the one that was written to/);
    t.same(await statuses(), ['ACTIVE']);
    t.equal((await store.look()).revision, 2, 'nothing is published that is not there');
    await projection.run();
    t.same(await statuses(), ['REVOKED']);
    t.equal((await store.look()).revision, await context.revision());
  });
}

// Redis was emptied once more while everything was written anew: it was said to be complete with what had been written since,
// and every other key was unknown, for good.
t.test(
  'a store that is emptied while everything is written anew is not complete',
  { skip: withoutRedis },
  async (t) => {
    const { client, context, id, projection, statuses, store } = await start(t);
    for (let count = 0; count < 3; count += 1) await createKey(context, 'test', id, { environment: 'live' });
    const rewrite = store.rewrite.bind(store);
    let pages = 0;
    store.rewrite = async (...args) => {
      if ((pages += 1) === 2) await client.flushall();
      return rewrite(...args);
    };
    await t.rejects(projection.run(), /not the one that was written to/);
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
    await t.rejects(projection.run(), /not the one that was written to/);
    t.equal((await store.look()).meta, null);
  },
);

t.test(
  'what another registry has begun since, or the same one again, publishes nothing',
  { skip: withoutRedis },
  async (t) => {
    const { client, store } = await start(t);
    await store.begin();
    await store.write([{ name: 'key:1', value: { revision: 1 } }], 1, 'g');
    await store.publish({ revision: 1, change: 'a' });
    await client.set('mg:writer', 'another:0');
    await t.rejects(store.publish({ revision: 2, change: 'b' }), /not the one/);
    await t.rejects(store.write([{ name: 'key:1', value: { revision: 2 } }], 2, 'g'), /not the one/);
    t.equal((await store.look()).revision, 1);
    await store.begin();
    await store.publish({ revision: 2, change: 'b' });
    t.equal((await store.look()).revision, 2);
  },
);

// It put its mark before it looked, and ended each pass of the right one.
t.test('a registry on another database writes nothing at all', { skip: withoutRedis }, async (t) => {
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
t.test('a damaged meta record lets no registry on another database in', { skip: withoutRedis }, async (t) => {
  const { client, context, id, projection, store, take } = await start(t);
  for (let count = 0; count < 3; count += 1) await createKey(context, 'test', id, { environment: 'live' });
  await projection.run();
  const { database, time } = await projectionFixture(t, 'sqlite::memory:');
  const wrong = new Projection({ ...common, database, store, clock: time, monotonic: time.monotonic, holder: 'wrong' });
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
});
