import type { Test } from 'tap';
import { createKey, revokeKey } from '../../src/registry/keys/key-changes.js';
import { createMerchant } from '../../src/registry/merchants/repository.js';
import { onEachDatabase } from '../database/each-database.js';
import { gateway } from '../registry/memory-records-store.js';
import { projectionFixture } from '../registry/projection-fixture.js';
import { differences, waitingChanges } from '../registry/stored-state.js';

// A database that had gone back was noticed by the acknowledgements of living gateways alone, and once in a process: the
// keys that it had lost stayed accepted, and a revocation was confirmed before it was written.

/** A database at revision 2 and a store at 4, with a key that the database does not know any more. */
async function goneBack(t: Test, url: string) {
  const fixture = await projectionFixture(t, url);
  const { context, database, projection, store } = fixture;
  const one = projection('one');
  const { id } = await createMerchant(context, 'test', { name: 'x' });
  const kept = await createKey(context, 'test', id, { environment: 'live' });
  await one.run();
  const { generation = '' } = store.meta ?? {};
  const lost = await createKey(context, 'test', id, { environment: 'live' });
  await revokeKey(context, 'test', lost.keyId);
  await one.run();
  t.equal(store.revision, 4);
  await database.deleteFrom('events').where('revision', '>', 2).execute();
  await database.deleteFrom('api_keys').where('key_id', '=', lost.keyId).execute();
  await database.updateTable('revision').set({ value: 2 }).execute();
  return { ...fixture, generation, kept, one };
}

onEachDatabase('a database that goes back under a registry is noticed, also where no gateway lives', async (t, url) => {
  const { context, database, generation, kept, one, store } = await goneBack(t, url);
  const published: number[] = [];
  const [publish, complete] = [store.publish.bind(store), store.complete.bind(store)];
  store.publish = async (position) => {
    published.push(position.revision);
    await publish(position);
  };
  store.complete = async (meta, position) => {
    published.push(position.revision);
    await complete(meta, position);
  };
  const { revision } = await revokeKey(context, 'test', kept.keyId);
  t.notOk(await one.hasProjected(revision), 'what was published before says nothing of it');
  await one.run();
  t.ok(await one.hasProjected(revision));
  t.same(await differences(database, store), [], 'a key that the database does not know goes from the store');
  t.equal(await waitingChanges(database), 0);
  t.not(store.meta?.generation, generation);
  const next = await createMerchant(context, 'test', { name: 'y' });
  t.equal(next.revision, 5);
  await one.run();
  t.same(await differences(database, store), []);
  t.ok(published.length > 1);
  t.same(
    published.filter((one) => one < 4),
    [],
    'a gateway would take a revision that goes back for a loss of the store',
  );
});

onEachDatabase('so is one that went back while no registry ran', async (t, url) => {
  const { context, database, generation, one, projection, store } = await goneBack(t, url);
  await one.end();
  await projection('another').run();
  t.same(await differences(database, store), []);
  t.not(store.meta?.generation, generation);
  t.equal((await createMerchant(context, 'test', { name: 'y' })).revision, 5);
});

onEachDatabase('so is one that went back together with the store, by what the registry published', async (t, url) => {
  const { context, database, one, store } = await goneBack(t, url);
  store.revision = 2;
  await one.run();
  t.same(await differences(database, store), []);
  t.equal((await createMerchant(context, 'test', { name: 'y' })).revision, 5);
});

onEachDatabase('of the store and the gateways, those who know more count', async (t, url) => {
  const { context, one, store } = await goneBack(t, url);
  store.live = [gateway('g', { revision: 9, acknowledges: false })];
  await one.run();
  t.equal((await createMerchant(context, 'test', { name: 'y' })).revision, 10);
});
