import { sql } from '../../src/database/kysely.js';
import fc from 'fast-check';
import t from 'tap';
import { registryAuthor } from '../../src/registry/events/author.js';
import { createKey, resetKey, revokeKey } from '../../src/registry/keys/key-changes.js';
import { changeMerchant, createMerchant } from '../../src/registry/merchants/repository.js';
import { onEachDatabase } from '../database/each-database.js';
import { until } from './manual-time.js';
import { gateway, type StoreCall } from './memory-records-store.js';
import { projectionFixture } from './projection-fixture.js';
import { differences, expectedRecords, storedRecords, waitingChanges } from './stored-state.js';

const points: [call: StoreCall, where: 'before' | 'midway' | 'after'][] = [
  ...(['snapshot', 'gateways', 'write', 'names', 'publish', 'complete'] as const).flatMap((call) =>
    (['before', 'midway', 'after'] as const).map((where): [StoreCall, typeof where] => [call, where]),
  ),
];

onEachDatabase('after a crash at any point of a projection the next one completes it', async (t, url) => {
  const { context, database, projection, store, time } = await projectionFixture(t, url);
  for (const seeded of [false, true]) {
    for (const [call, where] of points) {
      for (const skipped of [0, 1]) {
        if (!seeded) {
          store.meta = null;
          store.records.clear();
          store.records.set('key:strange', { keyId: 'strange' });
        }
        const { id } = await createMerchant(context, registryAuthor, { name: 'x' });
        const { keyId } = await createKey(context, registryAuthor, id, { environment: 'live' });
        await resetKey(context, registryAuthor, keyId, {});
        let left = skipped;
        store.fails = (one) => (one === call && (left -= 1) < 0 ? where : null);
        const title = `${call} ${where}, ${skipped} before, ${seeded ? 'seeded' : 'empty'}`;
        await projection(`crashes at ${title}`)
          .run()
          .catch(() => undefined);
        if (store.meta !== null)
          t.notOk(store.records.has('key:strange'), `${title}: the store is complete before it is marked as such`);
        store.fails = () => null;
        const next = projection(`after ${title}`);
        await next.run();
        time.advance(10_000);
        await next.run();
        t.same(await differences(database, store), [], title);
        t.equal(await waitingChanges(database), 0, title);
        t.equal(store.revision, await context.revision(), title);
        await next.end();
      }
    }
  }
});

onEachDatabase('changes are projected in order of revision, completely and in bounded batches', async (t, url) => {
  const { context, database, projection, store } = await projectionFixture(t, url);
  const one = projection('one');
  const { id } = await createMerchant(context, registryAuthor, { name: 'x' });
  const keys: string[] = [];
  for (let count = 0; count < 150; count += 1) {
    keys.push((await createKey(context, registryAuthor, id, { environment: 'live' })).keyId);
  }
  await one.run();
  await createMerchant(context, registryAuthor, { name: 'y' });
  for (const keyId of keys) await resetKey(context, registryAuthor, keyId, {});
  const published: number[] = [];
  const sizes: number[] = [];
  store.onWrite = (entries) => {
    sizes.push(entries.length);
    const lastMerchant = entries.findLastIndex(({ name }) => name.startsWith('merchant:'));
    t.equal(
      lastMerchant,
      entries.filter(({ name }) => name.startsWith('merchant:')).length - 1,
      'merchants precede keys',
    );
  };
  const publish = store.publish.bind(store);
  store.publish = async (position) => {
    const { revision } = position;
    published.push(revision);
    const expected = Object.entries(await expectedRecords(database));
    const due = expected.filter(([, record]) => (record as { revision: number }).revision <= revision);
    t.same(
      due.filter(
        ([name, record]) =>
          JSON.stringify(store.records.get(name)) !== JSON.stringify({ ...store.records.get(name), ...record }),
      ),
      [],
      `all changes up to revision ${revision} are in the store`,
    );
    await publish(position);
  };
  await one.run();
  t.same(published, [252, 302], 'a change that crosses the batch limit is projected as a whole');
  t.ok(Math.max(...sizes) <= 201, 'the batch size is bounded');
  t.same(storedRecords(store), await expectedRecords(database));
});

onEachDatabase('a store with another history is refilled without a gap for valid records', async (t, url) => {
  const { context, database, insertMerchants, projection, store } = await projectionFixture(t, url);
  await insertMerchants(1200);
  const { id } = await createMerchant(context, registryAuthor, { name: 'x' });
  const { keyId } = await createKey(context, registryAuthor, id, { environment: 'live' });
  await projection('one').run();
  const complete = storedRecords(store);
  t.equal(Object.keys(complete).length, 1202);

  store.meta = { version: 1, generation: 'another', projectedAt: '2020-01-01T00:00:00.000Z' };
  for (let index = 0; index < 700; index += 1) store.records.set(`key:strange${index}`, {});
  store.records.set('merchant:strange', {});
  store.calls.length = 0;
  let writes = 0;
  store.onWrite = async (entries) => {
    const missing = Object.keys(complete).filter((name) => !store.records.has(name));
    const removed = entries.filter(({ value }) => value === null).map(({ name }) => name);
    t.same([...missing, ...removed.filter((name) => name in complete)], []);
    t.ok(entries.length <= 500, 'the page size is bounded');
    writes += 1;
    if (writes === 2) await revokeKey(context, registryAuthor, keyId);
    if (writes === 3)
      t.match(entries, [{ value: { keyId, status: 'REVOKED' } }], 'a change is projected before the refill ends');
  };
  await projection('one').run();
  t.same(storedRecords(store), await expectedRecords(database));
  t.equal(store.calls.at(-1), 'publish');
  t.not(store.meta.generation, 'another');
  t.equal(store.revision, await context.revision());

  store.calls.length = 0;
  store.onWrite = () => undefined;
  await projection('one').run();
  t.notOk(store.calls.includes('write'), 'a complete store is not written');
});

onEachDatabase('only one process projects at a time, and a slow one does not restore old records', async (t, url) => {
  const { context, database, projection, store, time } = await projectionFixture(t, url);
  const [slow, other] = [projection('slow'), projection('other')];
  store.keepsLater = false;
  await slow.run();
  const { id } = await createMerchant(context, registryAuthor, { name: 'x' });
  const { keyId } = await createKey(context, registryAuthor, id, { environment: 'live' });
  await other.run();
  t.equal(await waitingChanges(database), 2, 'only the lease holder projects during the lease');

  let goOn: () => void = () => undefined;
  let isHeld = false;
  store.onWrite = () => {
    store.onWrite = () => undefined;
    isHeld = true;
    return new Promise((resolve) => (goOn = resolve));
  };
  const held = slow.run();
  await until(() => isHeld);
  time.advance(10_000);
  await revokeKey(context, registryAuthor, keyId);
  await other.run();
  t.same(await differences(database, store), []);
  goOn();
  await held;
  t.equal((await differences(database, store)).length, 1, 'the slow process wrote the outdated record it had read');
  await other.run();
  t.same(await differences(database, store), [], 'the slow process queued that record to be written again');
  t.equal(store.revision, 3);

  await other.end();
  await createMerchant(context, registryAuthor, { name: 'y' });
  await slow.run();
  t.same(await differences(database, store), [], 'a released lease is available at once');
});

onEachDatabase("a lease expires by the waiting process's clock, whatever time the row contains", async (t, url) => {
  const { context, database, projection, store, time } = await projectionFixture(t, url);
  const [crashed, next, third] = [projection('crashed'), projection('next'), projection('third')];
  await crashed.run();
  await createMerchant(context, registryAuthor, { name: 'x' });
  for (const hours of [1, -1]) {
    // The row left by a killed process whose clock was wrong by this many hours.
    const { holder } = await database.selectFrom('projector').selectAll().executeTakeFirstOrThrow();
    await database
      .updateTable('projector')
      .set({ lease_ends_at: time.now() + hours * 3600_000 })
      .execute();
    for (const one of [third, next]) await one.run();
    time.advance(3_499);
    for (const one of [third, next]) await one.run();
    t.match(await database.selectFrom('projector').selectAll().executeTakeFirstOrThrow(), { holder });
    time.advance(1);
    await next.run();
    await third.run();
    t.same(await differences(database, store), []);
    t.equal((await database.selectFrom('projector').selectAll().executeTakeFirstOrThrow()).holder, 'next');
  }

  for (let seconds = 0; seconds < 30; seconds += 1) {
    time.advance(1_000);
    await next.run();
    await third.run();
  }
  const row = await database.selectFrom('projector').selectAll().executeTakeFirstOrThrow();
  t.equal(row.holder, 'next', 'a renewed lease stays in force');
});

onEachDatabase(
  'a database that is behind the gateways continues after the highest revision they know',
  async (t, url) => {
    const { context, projection, store } = await projectionFixture(t, url);
    await createMerchant(context, registryAuthor, { name: 'x' });
    store.meta = { version: 1, generation: 'generation-0', projectedAt: '2020-01-01T00:00:00.000Z' };
    store.live = [gateway('g1', { revision: 40 }), gateway('g2', { revision: 41 })];
    await projection('one').run();
    t.equal((await createMerchant(context, registryAuthor, { name: 'y' })).revision, 42);
    t.not(store.meta.generation, 'generation-0');
  },
);

onEachDatabase(
  '200 concurrent changes get 200 consecutive revisions, and the store ends equal to the database',
  async (t, url) => {
    const { context, database, projection, store } = await projectionFixture(t, url);
    const one = projection('one');
    const merchants = await Promise.all(
      Array.from({ length: 40 }, () => createMerchant(context, registryAuthor, { name: 'x' })),
    );
    const state = { isChanging: true };
    const projecting = (async () => {
      while (state.isChanging) await one.run();
    })();
    const changes = await Promise.all(
      merchants.flatMap(({ id }, index) => [
        changeMerchant(context, registryAuthor, id, { goLive: true }),
        createKey(context, registryAuthor, id, { environment: 'live' }),
        changeMerchant(context, registryAuthor, id, { name: `number ${index}` }),
        createKey(context, registryAuthor, id, { environment: 'test' }).then(({ keyId }) =>
          revokeKey(context, registryAuthor, keyId),
        ),
      ]),
    );
    state.isChanging = false;
    await projecting;
    const rows = await database.selectFrom('events').select('revision').orderBy('seq').execute();
    t.same(
      rows.map(({ revision }) => revision),
      Array.from({ length: 240 }, (_, index) => index + 1),
      'events are in order of revision',
    );
    t.equal(
      new Set([...merchants, ...changes].map(({ revision }) => revision)).size,
      200,
      'each change reports its own revision',
    );
    await one.run();
    t.same(storedRecords(store), await expectedRecords(database));
    t.equal(store.revision, 240);
  },
);

onEachDatabase('after any sequence of changes and failures the store ends equal to the database', async (t, url) => {
  const step = fc.oneof(
    fc.record({ act: fc.constantFrom('merchant', 'change', 'key', 'reset', 'revoke'), which: fc.nat(50) }),
    fc.record({ act: fc.constant('run'), which: fc.nat(12) }),
    fc.record({ act: fc.constantFrom('empty', 'restart'), which: fc.nat(1) }),
  );
  const { context, database, projection, store, time } = await projectionFixture(t, url);
  let count = 0;
  await fc.assert(
    fc.asyncProperty(
      fc.array(step, { maxLength: 25 }),
      fc.infiniteStream(fc.constantFrom('before', 'midway', 'after')),
      async (steps, places) => {
        const merchants: string[] = [];
        const keys: string[] = [];
        const pick = (list: string[], which: number): string => list[which % list.length] ?? '';
        let one = projection(`run ${(count += 1)}`);
        for (const { act, which } of steps) {
          if (act === 'merchant')
            merchants.push((await createMerchant(context, registryAuthor, { name: `n${which}` })).id);
          if (act === 'empty') {
            store.records.clear();
            store.meta = null;
          }
          if (act === 'restart') {
            one = projection(`run ${(count += 1)}`);
            await one.run();
            time.advance(10_000);
          }
          if (act === 'run') {
            let left = which;
            store.fails = () => ((left -= 1) < 0 ? (places.next().value as 'before' | 'midway' | 'after') : null);
            await one.run().catch(() => undefined);
            store.fails = () => null;
          }
          if (act === 'change' && merchants.length > 0) {
            await changeMerchant(context, registryAuthor, pick(merchants, which), {
              name: `m${which}`,
              goLive: which % 2 === 0,
            });
          }
          if (act === 'key' && merchants.length > 0) {
            keys.push(
              (await createKey(context, registryAuthor, pick(merchants, which), { environment: 'live' })).keyId,
            );
          }
          if (act === 'reset' && keys.length > 0) {
            const reset = await resetKey(context, registryAuthor, pick(keys, which), {}).catch(() => null);
            if (reset !== null) keys.push(reset.keyId);
          }
          if (act === 'revoke' && keys.length > 0) await revokeKey(context, registryAuthor, pick(keys, which));
        }
        await one.run();
        await one.end();
        const unlike = await differences(database, store);
        return unlike.length === 0 && (await waitingChanges(database)) === 0 && store.meta !== null;
      },
    ),
    { numRuns: url.startsWith('sqlite') ? 60 : 25 },
  );
  t.pass();
});

t.test('a store that becomes available is filled at once, however long the outage was', async (t) => {
  const { database, projector, store, time } = await projectionFixture(t, 'sqlite::memory:');
  store.fails = () => 'before';
  projector.wake();
  for (let count = 0; count < 8; count += 1) {
    await until(() => time.untilNext !== null);
    time.advance(time.untilNext ?? 0);
  }
  await until(() => time.untilNext !== null);
  projector.storeFound();
  await until(() => time.untilNext !== null);
  t.equal(time.untilNext, 100, 'the backoff restarts if the store is still unavailable');
  store.fails = () => null;
  projector.storeFound();
  await until(() => store.meta !== null && time.untilNext !== null);
  t.same(await differences(database, store), []);
});

t.test('the wait for unknown gateways ends in time even under continuous changes', async (t) => {
  const { context, database, projection, projector, store, time } = await projectionFixture(t, 'sqlite::memory:');
  const one = projection('one');
  await one.run();
  const { id } = await createMerchant(context, registryAuthor, { name: 'x' });
  await one.run();
  await one.end();
  const isOpen = async () =>
    (await database.selectFrom('revision').select('is_open').executeTakeFirstOrThrow()).is_open;
  store.server = 'run-2';
  projector.wake();
  await until(async () => (await isOpen()) === 0 && time.untilNext !== null);
  let count = 0;
  store.onWrite = async () => {
    count += 1;
    if (count === 5) time.advance(31_000);
    if (count < 200 && (await isOpen()) === 0) await changeMerchant(context, registryAuthor, id, { name: `m${count}` });
  };
  await changeMerchant(context, registryAuthor, id, { name: 'first' });
  projector.wake();
  await until(async () => {
    if (time.untilNext === 0) time.advance(0);
    return (await isOpen()) === 1;
  });
  t.ok(count < 20, `ended after ${count} changes`);
});

t.test('a store that becomes readable without a notice is filled within one second', async (t) => {
  const { database, projector, store, time } = await projectionFixture(t, 'sqlite::memory:');
  store.fails = () => 'before';
  projector.wake();
  for (const pause of [100, 200, 400, 800, 1000, 1000]) {
    await until(() => time.untilNext !== null);
    t.equal(time.untilNext, pause);
    time.advance(pause);
  }
  store.fails = (call) => (call === 'complete' ? 'before' : null);
  for (const pause of [100, 200]) {
    await until(() => time.untilNext !== null);
    t.equal(time.untilNext, pause, 'the backoff restarts if the store is readable and then fails');
    time.advance(pause);
  }
  await until(() => time.untilNext !== null);
  store.fails = () => null;
  time.advance(400);
  await until(() => store.meta !== null && time.untilNext !== null);
  t.same(await differences(database, store), []);
});

t.test('an unavailable database is retried within half a second', async (t) => {
  const { database, projector, store, time } = await projectionFixture(t, 'sqlite::memory:');
  await sql`pragma query_only = on`.execute(database);
  projector.wake();
  for (const pause of [100, 200, 400, 500, 500]) {
    await until(() => time.untilNext !== null);
    t.equal(time.untilNext, pause);
    time.advance(pause);
  }
  await until(() => time.untilNext !== null);
  await sql`pragma query_only = off`.execute(database);
  time.advance(500);
  await until(() => store.meta !== null && time.untilNext !== null);
  t.same(await differences(database, store), []);
});

t.test('the projector retries with increasing backoff, reacts to a change at once, and also polls', async (t) => {
  const { context, database, logged, projector, store, time } = await projectionFixture(t, 'sqlite::memory:');
  store.fails = (call) => (call === 'complete' ? 'before' : null);
  const pauses: (number | null)[] = [];
  projector.wake();
  for (let count = 0; count < 9; count += 1) {
    await until(() => time.untilNext !== null);
    pauses.push(time.untilNext);
    time.advance(time.untilNext ?? 0);
  }
  t.same(pauses, [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
  await until(() => time.untilNext !== null);
  const failures = logged.filter(({ message }) => message.startsWith('records could not be written to the store'));
  t.equal(failures.length, 1, 'an outage is logged once, not per attempt');

  const failed = store.calls.length;
  await createMerchant(context, registryAuthor, { name: 'x' });
  projector.wake();
  await until(() => store.calls.length > failed && time.untilNext !== null);
  store.fails = () => null;
  time.advance(10_000);
  await until(() => store.meta !== null && time.untilNext !== null);
  t.same(await differences(database, store), []);
  t.match(logged.at(-1), { message: 'records can be written to the store again', details: { failures: 11 } });

  t.equal(time.untilNext, 1000);
  await createMerchant(context, registryAuthor, { name: 'of another process' });
  time.advance(1000);
  await until(async () => (await waitingChanges(database)) === 0 && time.untilNext !== null);
  store.records.clear();
  store.meta = null;
  time.advance(1000);
  await until(() => store.meta !== null && time.untilNext !== null);
  t.same(await differences(database, store), [], 'an emptied store is filled again');

  await createMerchant(context, registryAuthor, { name: 'y' });
  projector.wake();
  projector.wake();
  await until(async () => (await waitingChanges(database)) === 0);
  await projector.stop();
  t.equal(time.untilNext, null);
  projector.wake();
  t.equal(time.untilNext, null, 'a stopped projector schedules nothing');
  const { lease_ends_at } = await database.selectFrom('projector').selectAll().executeTakeFirstOrThrow();
  t.equal(lease_ends_at, 0);
});

onEachDatabase('changes that the store has lost are written again', async (t, url) => {
  const { context, database, projection, store } = await projectionFixture(t, url);
  const one = projection('one');
  const { id } = await createMerchant(context, registryAuthor, { name: 'x' });
  const { keyId } = await createKey(context, registryAuthor, id, { environment: 'live' });
  await one.run();
  const before = new Map(store.records);
  const revision = store.revision;
  await revokeKey(context, registryAuthor, keyId);
  await one.run();
  t.not(store.revision, revision);

  store.records.clear();
  for (const [name, record] of before) store.records.set(name, record);
  store.revision = revision; // a promoted replica had not received the revocation
  await one.run();
  t.same(await differences(database, store), []);
  t.equal(store.revision, await context.revision());

  // The store loses the revocation again, now while another change is pending. The lost records must not be taken for
  // pending ones, and nothing may be published before all records are written.
  for (const holder of ['one', 'another']) {
    store.records.clear();
    for (const [name, record] of before) store.records.set(name, record);
    store.revision = revision;
    const callsBefore = store.calls.length;
    await changeMerchant(context, registryAuthor, id, { name: `changed before ${holder}` });
    await projection(holder).run();
    t.same(await differences(database, store), [], holder);
    t.equal(store.revision, await context.revision());
    const calls = store.calls.slice(callsBefore);
    t.equal(calls.filter((call) => call === 'complete').length, 1, 'marked as complete once');
    t.notOk(
      calls.slice(0, calls.indexOf('complete')).includes('publish'),
      'nothing is published before all records are written',
    );
    await projection(holder).end();
  }

  store.records.clear();
  for (const [name, record] of before) store.records.set(name, record);
  store.whole = false; // part of the store was rolled back, its revision was not
  await one.run();
  t.same(await differences(database, store), []);
  store.whole = true;

  const writes = store.calls.filter((call) => call === 'write').length;
  await one.run();
  t.equal(store.calls.filter((call) => call === 'write').length, writes, 'a complete store is not written');
});
