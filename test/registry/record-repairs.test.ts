import { listEvents } from '../../src/registry/events/repository.js';
import { createKey, resetKey, revokeKey } from '../../src/registry/keys/key-changes.js';
import { changeMerchant, createMerchant } from '../../src/registry/merchants/repository.js';
import type { RegistryDatabase } from '../../src/registry/registry-database.js';
import { onEachDatabase } from '../database/each-database.js';
import type { Test } from 'tap';
import { registryAuthor } from '../../src/registry/events/author.js';
import { MemoryWatch } from './memory-watch.js';
import { projectionFixture } from './projection-fixture.js';
import { differences } from './stored-state.js';

const live = { environment: 'live' } as const;

/** A projection that has written a merchant and three keys, on a store that reports writes by others. */
async function watchedFixture(t: Test, url: string) {
  const fixture = await projectionFixture(t, url);
  const { context, projection, store } = fixture;
  const watch = new MemoryWatch(store);
  store.watched = watch;
  const logged: { details: object; message: string }[] = [];
  const log = (details: object, message: string): void => void logged.push({ details, message });
  const one = projection('one', undefined, { error: log, warn: log, info: log });
  await one.run();
  const merchant = await createMerchant(context, registryAuthor, { name: 'x', status: 'ACTIVE', goLive: true });
  const keys = [];
  for (let count = 0; count < 3; count += 1) keys.push(await createKey(context, registryAuthor, merchant.id, live));
  await one.run();
  await one.run();
  const names = [...store.records.keys()].filter((name) => name.startsWith('key:'));
  const nameOf = (keyId: string) =>
    names.find((name) => (store.records.get(name) as { keyId: string }).keyId === keyId) ?? '';
  const repaired = () => Object.fromEntries([...one.repairCounts.repaired].filter(([, count]) => count > 0));
  return { ...fixture, one, watch, merchant, keys, names, nameOf, repaired, logged };
}

async function forgeries(database: RegistryDatabase) {
  const { items } = await listEvents(database, { action: 'record.forged' }, { page: 1, perPage: 100 });
  return items;
}

onEachDatabase(
  'a record of an earlier release is not a forgery, although it lacks the time of its status change',
  async (t, url) => {
    const { context, database, keys, nameOf, one, repaired, store, time, watch } = await watchedFixture(t, url);
    const keyId = keys[0]?.keyId ?? '';
    const name = nameOf(keyId);
    await revokeKey(context, registryAuthor, keyId);
    await one.run();
    const { statusChangedAt, ...earlier } = store.records.get(name) as { statusChangedAt?: string };
    t.match(statusChangedAt, /^2026-/);
    store.records.set(name, earlier);
    watch.notice(name);
    time.advance(1_000);
    await one.run();
    t.same(repaired(), { layout: 1 });
    t.match(store.records.get(name), { statusChangedAt });
    t.same(await differences(database, store), []);
  },
);

onEachDatabase('nor is a record that lacks the label or the end of a grace period', async (t, url) => {
  const { context, database, merchant, one, repaired, store, time, watch } = await watchedFixture(t, url);
  const input = { environment: 'live', label: 'till 7' } as const;
  const { keyId } = await createKey(context, registryAuthor, merchant.id, input);
  await resetKey(context, registryAuthor, keyId, { graceSeconds: 60 });
  await one.run();
  const ofKey = [...store.records].find(([, value]) => 'keyId' in value && value.keyId === keyId);
  const [name = '', value = {}] = ofKey ?? [];
  t.match(value, { label: 'till 7', graceEndsAt: /^2026-/ });
  const earlier = Object.entries(value).filter(([member]) => member !== 'label' && member !== 'graceEndsAt');
  store.records.set(name, Object.fromEntries(earlier));
  watch.notice(name);
  time.advance(1_000);
  await one.run();
  t.same(repaired(), { layout: 1 });
  t.same(await differences(database, store), []);
  const forged = { ...value, label: 'other' };
  store.records.set(name, forged);
  watch.notice(name);
  time.advance(1_000);
  await one.run();
  t.same(repaired(), { layout: 1, forged: 1 });
});

onEachDatabase('unauthorised changes to a record are repaired, counted and logged', async (t, url) => {
  const { context, database, keys, logged, merchant, nameOf, one, repaired, store, time, watch } = await watchedFixture(
    t,
    url,
  );
  const [first, second, third] = keys.map(({ keyId }) => nameOf(keyId)) as [string, string, string];
  const merchantName = `merchant:${merchant.id}`;
  const generation = store.meta?.generation;
  t.same(repaired(), {}, "the process's own writes are not counted as repairs");
  await revokeKey(context, registryAuthor, keys[0]?.keyId ?? '');
  const older = { ...store.records.get(first) };
  await one.run();

  const active = { ...store.records.get(second) };
  const copied = { ...store.records.get(merchantName) };
  store.records.set(first, older);
  store.records.set(second, { ...active, permissions: ['payouts:write'], revision: 1_000_000 });
  store.records.delete(third);
  store.records.set(merchantName, { ...copied, another: 'member' });
  store.records.set('key:nobody', { ...active });
  store.records.set('merchant:m_nobody', copied);
  store.records.set('key:a name\0that PostgreSQL refuses', { ...active });
  const unexpected = ['key:nobody', 'merchant:m_nobody', 'key:a name\0that PostgreSQL refuses'];
  watch.notice(first, second, third, merchantName, ...unexpected);
  time.advance(1_000);
  await one.run();
  t.same(await differences(database, store), []);
  t.same(repaired(), { missing: 1, unknown: 3, older: 1, layout: 1, forged: 1 });
  t.equal(store.meta?.generation, generation, 'no other record was rewritten');

  const events = (await forgeries(database)).map(({ actor, merchantId, keyId, before, after }) => {
    return { actor, merchantId, keyId, before, after };
  });
  const own = { actor: 'registry', before: null, merchantId: merchant.id };
  const withoutKey = { actor: 'registry', before: null, keyId: null };
  t.same(
    events.toSorted((a, b) => JSON.stringify(a.after).localeCompare(JSON.stringify(b.after))),
    [
      { ...own, keyId: keys[0]?.keyId, after: { record: first, cause: 'older' } },
      { ...own, keyId: keys[1]?.keyId, after: { record: second, cause: 'forged' } },
      { ...withoutKey, merchantId: '', after: { record: unexpected[2], cause: 'unknown' } },
      { ...withoutKey, merchantId: '', after: { record: 'key:nobody', cause: 'unknown' } },
      { ...withoutKey, merchantId: 'm_nobody', after: { record: 'merchant:m_nobody', cause: 'unknown' } },
    ].toSorted((a, b) => JSON.stringify(a.after).localeCompare(JSON.stringify(b.after))),
  );
  const lines = logged.filter(({ message }) => message.startsWith('records in the store differed from'));
  t.equal(lines.length, 1);
  t.match(lines[0]?.details, { repaired: { missing: 1, unknown: 3, older: 1, layout: 1, forged: 1 } });
  t.match(JSON.stringify(lines[0]?.details), first);
  t.notMatch(JSON.stringify(lines), 'payouts:write', 'the log contains only record names');
});

onEachDatabase('a pending change is not a forgery, and a record forged in the meantime is detected', async (t, url) => {
  const { context, database, keys, merchant, nameOf, one, repaired, store, watch } = await watchedFixture(t, url);
  const [first = '', second = ''] = keys.map(({ keyId }) => nameOf(keyId));
  await revokeKey(context, registryAuthor, keys[0]?.keyId ?? '');
  await revokeKey(context, registryAuthor, keys[1]?.keyId ?? '');
  const created = await createKey(context, registryAuthor, merchant.id, live);
  const generation = store.meta?.generation;
  store.records.set(second, { ...store.records.get(second), revision: 1_000_000 });
  watch.notice(first, second);
  await one.run();
  t.same(repaired(), { forged: 1 });
  t.same(
    (await forgeries(database)).map(({ keyId }) => keyId),
    [keys[1]?.keyId],
  );
  t.equal(store.meta?.generation, generation, 'a forged record is not mistaken for a record of a lost history');
  t.same(await differences(database, store), []);
  t.ok([...store.records.values()].some((record) => (record as { keyId?: string }).keyId === created.keyId));
});

onEachDatabase('an emptied store is refilled as a whole, not record by record', async (t, url) => {
  const { context, database, names, one, repaired, store, watch } = await watchedFixture(t, url);
  const before = store.meta;
  watch.notice(...names);
  store.records.clear();
  // The notice of the flush arrives after the notices of the records.
  watch.onCompared = () => {
    store.epoch += 1;
    store.meta = null;
    watch.onCompared = () => undefined;
  };
  await one.run();
  t.same(repaired(), {});
  t.equal(store.records.size, 0);
  t.ok(watch.isResting, 'watching is suspended until the store was compared');
  await one.run();
  t.not(store.meta?.generation, before?.generation, 'the refill starts a new generation');
  t.same(await differences(database, store), []);

  watch.notice(...names);
  store.records.delete(names[0] ?? '');
  watch.onCompared = () => {
    store.revision -= 1;
    watch.onCompared = () => undefined;
  };
  await one.run();
  t.same(repaired(), {}, 'a rolled-back store is not repaired record by record');
  await one.run();
  t.same(await differences(database, store), []);
  await changeMerchant(
    context,
    registryAuthor,
    (await database.selectFrom('merchants').select('id').executeTakeFirstOrThrow()).id,
    {
      name: 'y',
    },
  );
  await one.run();
  t.same(await differences(database, store), []);
});

onEachDatabase('a restored database does not overwrite newer records in the store', async (t, url) => {
  const { context, database, keys, nameOf, names, one, repaired, store, watch } = await watchedFixture(t, url);
  const keyId = keys[0]?.keyId ?? '';
  const history = await database.selectFrom('revision').selectAll().executeTakeFirstOrThrow();
  const key = database.selectFrom('api_keys').selectAll().where('key_id', '=', keyId);
  const { status, revision } = await key.executeTakeFirstOrThrow();
  await revokeKey(context, registryAuthor, keyId);
  await one.run();
  watch.notice(names[0] ?? '');
  watch.onCompared = async () => {
    watch.onCompared = () => undefined;
    await database.updateTable('revision').set(history).execute();
    await database.updateTable('api_keys').set({ status, revision }).where('key_id', '=', keyId).execute();
    watch.notice(nameOf(keyId));
  };
  await one.run();
  t.same(repaired(), {});
  t.equal((store.records.get(nameOf(keyId)) as { status: string }).status, 'REVOKED');
  await one.run();
  t.equal((await key.executeTakeFirstOrThrow()).status, 'REVOKED', 'the key is held back');
});

onEachDatabase('forging records in a loop floods neither the events nor the log', async (t, url) => {
  const { database, names, logged, one, repaired, store, time, watch } = await watchedFixture(t, url);
  const [name = ''] = names;
  const lines = () => logged.filter(({ message }) => message.startsWith('records in the store differed from')).length;
  const forge = async (): Promise<void> => {
    store.records.set(name, { ...store.records.get(name), status: 'FORGED' });
    watch.notice(name);
    await one.run();
  };
  time.advance(1_000);
  for (let count = 0; count < 20; count += 1) await forge();
  t.same(repaired(), { forged: 20 }, 'every forgery is counted');
  t.equal((await forgeries(database)).length, 1);
  t.equal(lines(), 1);
  time.advance(1_000);
  await one.run();
  t.equal(lines(), 2, 'further forgeries are logged in one line');
  t.match(logged.at(-1)?.details, { repaired: { forged: 19 } });
  time.advance(600_000);
  await forge();
  t.equal((await forgeries(database)).length, 2);
  for (let round = 0; round < 6; round += 1) {
    const unexpected = Array.from({ length: 300 }, (_, index) => `key:strange-${round}-${index}`);
    for (const one of unexpected) store.records.set(one, { status: 'FORGED' });
    watch.notice(...unexpected);
    await one.run();
  }
  t.same(repaired(), { forged: 21, unknown: 1_800 });
  const { count } = await database
    .selectFrom('events')
    .select((it) => it.fn.countAll<number>().as('count'))
    .where('action', '=', 'record.forged')
    .executeTakeFirstOrThrow();
  t.equal(count, 1_001);
  t.same(await differences(database, store), []);
});

onEachDatabase('all records are compared repeatedly at a bounded rate', async (t, url) => {
  const { database, insertMerchants, one, repaired, store, time, watch } = await watchedFixture(t, url);
  await insertMerchants(2_900);
  store.meta = null;
  await one.run();
  t.same(await differences(database, store), []);
  /** Runs one pass per second until all records were compared; returns the number of passes. */
  const sweep = async (): Promise<number> => {
    const before = one.repairCounts.sweptAt;
    for (let passes = 1; passes < 500; passes += 1) {
      time.advance(1_000);
      await one.run();
      // Meanwhile, the projection reads the names of the next records.
      await new Promise(setImmediate);
      if (one.repairCounts.sweptAt !== before) return passes;
    }
    return Infinity;
  };
  await sweep();
  await sweep();
  const [name = ''] = store.records.keys();
  store.records.delete(name);
  store.records.set('key:strange', { status: 'ACTIVE' });
  watch.compared.length = 0;
  time.advance(60_000);
  const passes = await sweep();
  t.ok(passes >= 5 && passes <= 30, `a sweep of 2,903 records takes ${passes} s, within bounds`);
  t.same(repaired(), { missing: 1, unknown: 1 });
  t.same(await differences(database, store), []);
  t.ok(watch.compared.length / passes <= 2.1, 'at most two pages per second');

  store.records.delete(name);
  watch.lose();
  const hasty = await sweep();
  t.ok(hasty < passes, `a sweep is faster after lost notices: ${hasty} s`);
  t.same(await differences(database, store), []);
});

onEachDatabase(
  'only the projecting process repairs; after losing the lease it queues its last writes again',
  async (t, url) => {
    const { database, names, one, projection, repaired, store, time, watch } = await watchedFixture(t, url);
    const two = projection('two');
    const [name = ''] = names;
    store.records.set(name, { ...store.records.get(name), status: 'FORGED' });
    watch.notice(name);
    await two.run();
    t.equal((store.records.get(name) as { status: string }).status, 'FORGED');
    t.ok(watch.isResting);

    watch.notice(name);
    const repair = watch.repair.bind(watch);
    watch.repair = async (found) => {
      await repair(found);
      await one.end();
      time.advance(5_000);
      await two.run();
    };
    await one.run();
    watch.repair = repair;
    t.same(repaired(), { forged: 1 });
    const waiting = await database.selectFrom('outbox').select('name').execute();
    t.same(waiting, [{ name }], 'the write may have replaced a later record');
    await two.run();
    t.same(await differences(database, store), []);
  },
);
