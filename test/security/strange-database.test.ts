import { createKey } from '../../src/registry/keys/key-changes.js';
import { changeMerchant, createMerchant } from '../../src/registry/merchants/repository.js';
import { onEachDatabase } from '../database/each-database.js';
import { projectionFixture } from '../registry/projection-fixture.js';
import { differences } from '../registry/stored-state.js';

// A registry that was started on an empty database, from another directory perhaps or with a wrong name, took every record out of
// Redis: each key of each merchant was refused as unknown.
onEachDatabase('a registry on another database leaves the store as it is', async (t, url) => {
  const { context, database, projection, store } = await projectionFixture(t, url);
  const meta = { version: 1, generation: 'of another registry', projectedAt: '2026-01-01T00:00:00.000Z' } as const;
  store.meta = meta;
  store.revision = 7;
  for (let count = 0; count < 5; count += 1) store.records.set(`key:${count}`, { revision: count });
  const before = store.text();
  const sentence = /another registry's: of its 5 records this database knows 0\. Is it the right database/;
  await t.rejects(projection('one').run(), sentence);
  const { id } = await createMerchant(context, 'test', { name: 'x' });
  await createKey(context, 'test', id, { environment: 'live' });
  await t.rejects(projection('one').run(), sentence, 'also where it has records of its own');
  t.equal(store.text(), before);

  store.meta = null;
  await projection('one').run();
  t.same(await differences(database, store), [], 'whoever wants that deletes the record meta');
});

onEachDatabase('a store that went back to what it was under an older history is written anew', async (t, url) => {
  const { context, database, projection, store } = await projectionFixture(t, url);
  const { id } = await createMerchant(context, 'test', { name: 'x' });
  await createKey(context, 'test', id, { environment: 'live' });
  await projection('one').run();
  store.meta = { version: 1, generation: 'before', projectedAt: '2026-01-01T00:00:00.000Z' };
  store.records.set('key:gone', { revision: 1 });
  await projection('one').run();
  t.same(await differences(database, store), []);
});

// What had a higher number than the database has come to was never replaced: a change was confirmed, and not there.
onEachDatabase('a record of a later history is replaced all the same', async (t, url) => {
  const { context, database, projection, store } = await projectionFixture(t, url);
  const { id } = await createMerchant(context, 'test', { name: 'x' });
  const one = projection('one');
  await one.run();
  store.records.set(`merchant:${id}`, { ...store.records.get(`merchant:${id}`), status: 'OTHER', revision: 900 });
  await createKey(context, 'test', id, { environment: 'live' });
  await one.run();
  t.match(store.records.get(`merchant:${id}`), { revision: 900 }, 'it has not been written');
  store.meta = null;
  await t.rejects(one.run(), /a record of revision 900/);
  await one.run();
  t.same(await differences(database, store), []);
  t.ok((await context.revision()) >= 900);
});

// It had been at a number that the database has come to since: what was written on the way of a change that was lost.
onEachDatabase(
  'a record of a history that was lost is replaced also where the database has come to its number',
  async (t, url) => {
    const { context, database, projection, store } = await projectionFixture(t, url);
    const { id } = await createMerchant(context, 'test', { name: 'x' });
    const one = projection('one');
    await one.run();
    const lost = { ...store.records.get(`merchant:${id}`), name: 'lost', revision: 3 };
    store.records.set(`merchant:${id}`, lost);
    store.records.set('key:lost', { revision: 3 });
    store.meta = null;
    store.onWrite = async () => {
      store.onWrite = () => undefined;
      for (const name of ['y', 'z']) await createMerchant(context, 'test', { name });
    };
    await one.run();
    t.same(await differences(database, store), [], 'everything anew');

    store.records.set(`merchant:${id}`, { ...lost, revision: 5 });
    await changeMerchant(context, 'test', id, { name: 'changed' });
    store.onWrite = async () => {
      store.onWrite = () => undefined;
      await createMerchant(context, 'test', { name: 'meanwhile' });
    };
    await one.run();
    t.same(await differences(database, store), [], 'a change');
  },
);

// The first pass begins a new history. When it broke off, the next one took the store for another registry's, for ever.
onEachDatabase('a database that was restored goes on, also where its first pass breaks off', async (t, url) => {
  const { context, database, projection, store } = await projectionFixture(t, url);
  const { id } = await createMerchant(context, 'test', { name: 'x' });
  await projection('one').run();
  for (let count = 0; count < 5; count += 1) store.records.set(`key:since ${count}`, { revision: 7 });
  store.revision = 7;
  store.records.set(`merchant:${id}`, { ...store.records.get(`merchant:${id}`), revision: 7 });
  const generation = store.meta?.generation;
  store.fails = (call) => (call === 'write' ? 'before' : null);
  await t.rejects(projection('one').run(), /the store is away/);
  store.fails = () => null;
  t.equal(store.meta?.generation, generation);
  await projection('one').run();
  t.same(await differences(database, store), []);
  t.not(store.meta?.generation, generation);
});

// PostgreSQL refuses a text with a NUL: such a name in Redis had each comparison fail, and nothing was projected any more.
onEachDatabase('a name in Redis that no database can be asked for stops nothing, and is removed', async (t, url) => {
  const { context, database, projection, store } = await projectionFixture(t, url);
  const one = projection('one');
  await one.run();
  await createMerchant(context, 'test', { name: 'x' });
  await one.run();
  const fields = { merchantId: 'm', status: 'REVOKED', revision: 99 };
  store.records.set('key:\u0000', { ...fields, keyId: 'k', environment: 'live', permissions: [], expiresAt: null });
  store.records.set('merchant:\u0000', {
    ...fields,
    name: 'x',
    goLive: false,
    ipAllowlist: null,
    originAllowlist: null,
  });
  store.revision = 99;
  await one.run();
  t.same(await differences(database, store), []);
});
