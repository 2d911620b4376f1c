import type { Test } from 'tap';
import { createKey, resetKey, revokeKey } from '../../src/registry/keys/key-changes.js';
import { changeMerchant, createMerchant } from '../../src/registry/merchants/repository.js';
import { Roster } from '../../src/registry/gateways/roster.js';
import type { InactiveReport } from '../../src/gateway/store-ports.js';
import { lift, listHeldBack } from '../../src/registry/restores/held-back.js';
import { onEachDatabase } from '../database/each-database.js';
import type { RegistryDatabase } from '../../src/registry/registry-database.js';
import { projectionFixture } from '../registry/projection-fixture.js';
import { differences } from '../registry/stored-state.js';

const paging = { page: 1, perPage: 100 };
const tables = ['merchants', 'api_keys', 'events', 'outbox', 'revision', 'former_generations', 'gateways'] as const;

/** Copies a database. @returns what puts it back */
async function backUp(database: RegistryDatabase): Promise<() => Promise<void>> {
  const backup = await Promise.all(tables.map((table) => database.selectFrom(table).selectAll().execute()));
  return async () => {
    for (const table of tables.toReversed()) await database.deleteFrom(table).execute();
    for (const [index, table] of tables.entries()) {
      // An identity column gives no number that is given to it.
      const rows = (backup[index] ?? []).map((row) => ('seq' in row ? { ...row, seq: undefined } : row));
      if (rows.length > 0) await database.insertInto(table).values(rows).execute();
    }
  };
}

/** A key that was revoked after a backup; the registry has ended, and the backup can be put back. */
async function revokedSinceBackup(t: Test, url: string) {
  const fixture = await projectionFixture(t, url);
  const { context, database, projection } = fixture;
  const one = projection('one');
  await one.run();
  const { id } = await createMerchant(context, 'test', { name: 'x', goLive: true });
  const { keyId } = await createKey(context, 'test', id, { environment: 'live' });
  await one.run();
  const putBack = await backUp(database);
  await revokeKey(context, 'test', keyId);
  await one.run();
  await one.end();
  return { ...fixture, keyId, putBack };
}

onEachDatabase(
  'what was revoked after a backup stays inactive when it is restored, until it is lifted',
  async (t, url) => {
    const { context, database, projection, store, time } = await projectionFixture(t, url);
    const one = projection('one');
    await one.run();
    const { id } = await createMerchant(context, 'test', { name: 'x', goLive: true });
    const suspended = await createMerchant(context, 'test', { name: 'y' });
    const live = { environment: 'live' } as const;
    const [good, revoked, reset] = [
      await createKey(context, 'test', id, live),
      await createKey(context, 'test', id, live),
      await createKey(context, 'test', id, live),
    ];
    await one.run();
    const putBack = await backUp(database);

    await revokeKey(context, 'test', revoked.keyId);
    await resetKey(context, 'test', reset.keyId, { graceSeconds: 3600 });
    await changeMerchant(context, 'test', suspended.id, { status: 'SUSPENDED' });
    await changeMerchant(context, 'test', id, { goLive: false, name: 'another name' });
    await one.run();
    await one.end();

    await putBack();
    time.advance(60_000);
    const next = projection('next');
    await next.run();
    const status = async (keyId: string) =>
      (await database.selectFrom('api_keys').selectAll().where('key_id', '=', keyId).executeTakeFirstOrThrow()).status;
    t.equal(await status(revoked.keyId), 'REVOKED', 'what Redis knows as revoked stays so');
    t.equal(await status(good.keyId), 'ACTIVE');
    const ended = await database
      .selectFrom('api_keys')
      .selectAll()
      .where('key_id', '=', reset.keyId)
      .executeTakeFirstOrThrow();
    t.equal(ended.expires_at, time.now() - 60_000 + 3_600_000, 'a key that was to end ends');
    t.match(await database.selectFrom('merchants').selectAll().where('id', '=', suspended.id).execute(), [
      { status: 'SUSPENDED' },
    ]);
    t.match(await database.selectFrom('merchants').selectAll().where('id', '=', id).execute(), [
      { go_live: 0, name: 'x' },
    ]);
    t.same(await differences(database, store), [], 'and so do the records');

    const held = await listHeldBack(database, paging);
    t.equal(held.totalRecords, 4);
    t.same(held.items.map((item) => item.id).toSorted(), [revoked.keyId, reset.keyId, suspended.id, id].toSorted());
    t.match(held.items[0], { source: 'store', foundAt: new Date(time.now()).toISOString() });
    t.match(await database.selectFrom('restores').selectAll().execute(), [
      { found_at: time.now(), newest_at: time.now() - 60_000, is_certain: 1 },
    ]);

    await lift(context, 'ada', revoked.keyId);
    await lift(context, 'ada', id);
    await lift(context, 'ada', reset.keyId);
    t.equal(await status(revoked.keyId), 'ACTIVE');
    t.match(await database.selectFrom('merchants').selectAll().where('id', '=', id).execute(), [{ go_live: 1 }]);
    t.equal((await listHeldBack(database, paging)).totalRecords, 1);
    await t.rejects(lift(context, 'ada', revoked.keyId), { message: /not found/i });
    await next.run();
    t.same(await differences(database, store), []);
    const actions = (await database.selectFrom('events').select(['action', 'actor']).orderBy('seq').execute()).slice(
      -7,
    );
    t.same(
      actions.map(({ action, actor }) => `${action} by ${actor}`),
      [
        ...['merchant.held-back by registry', 'merchant.held-back by registry'],
        ...['key.held-back by registry', 'key.held-back by registry'],
        ...['key.lifted by ada', 'merchant.lifted by ada', 'key.lifted by ada'],
      ],
    );
  },
);

onEachDatabase('where nobody is left who knows, it is said since when changes are unknown', async (t, url) => {
  const { context, database, projection, store, time } = await projectionFixture(t, url);
  const one = projection('one');
  await one.run();
  await createMerchant(context, 'test', { name: 'x' });
  await one.run();
  t.same(await database.selectFrom('restores').selectAll().execute(), []);
  const newest = time.now();
  await one.end();
  time.advance(60_000);
  [store.meta, store.revision, store.change] = [null, 0, null];
  store.records.clear();
  await projection('next').run();
  t.match(await database.selectFrom('restores').selectAll().execute(), [
    { found_at: time.now(), newest_at: newest, is_certain: 0 },
  ]);
});

/** A database that lacks two revocations, and an empty store. `report` is what a gateway remembers of them. */
async function restoredBesideEmptyStore(t: Parameters<typeof projectionFixture>[0], url: string) {
  const fixture = await projectionFixture(t, url);
  const { context, database, projection, store } = fixture;
  const one = projection('one');
  await one.run();
  const { id } = await createMerchant(context, 'test', { name: 'x', goLive: true });
  const key = await createKey(context, 'test', id, { environment: 'live' });
  await one.run();
  await one.end();
  const { lookup_id } = await database.selectFrom('api_keys').selectAll().executeTakeFirstOrThrow();
  const generation = store.meta?.generation ?? '';
  [store.meta, store.revision, store.change] = [null, 0, null];
  store.records.clear();
  const common = { merchantId: id, revision: 9 };
  const lists = { ipAllowlist: null, originAllowlist: null };
  const report: InactiveReport = {
    ...{ name: 'inactive:g:0', instanceId: 'g', generation, revision: 9, isSealed: false },
    entries: [
      { name: `merchant:${id}`, value: { ...common, ...lists, name: '', status: 'ACTIVE', goLive: false } },
      {
        name: `key:${lookup_id}`,
        value: {
          ...common,
          keyId: key.keyId,
          environment: 'live',
          status: 'REVOKED',
          permissions: [],
          expiresAt: null,
        },
      },
      { name: `key:${'0'.repeat(64)}`, value: { ...common, keyId: 'key_other', status: 'REVOKED' } },
    ],
  };
  const states = async () => {
    const { status } = await database.selectFrom('api_keys').selectAll().executeTakeFirstOrThrow();
    const { go_live } = await database.selectFrom('merchants').selectAll().executeTakeFirstOrThrow();
    return { status, goLive: go_live };
  };
  const rosterOf = (projecting: typeof one) =>
    new Roster({
      ...{ database, store, projection: projecting, clock: fixture.time, timers: fixture.time },
      ...{ longestLifetimeMilliseconds: 31_000, onWork: () => undefined },
    });
  return { ...fixture, keyId: key.keyId, merchantId: id, report, rosterOf, states };
}

onEachDatabase('what a gateway reports as revoked is held back before anything is written', async (t, url) => {
  const { database, keyId, logged, merchantId, projector, report, states, store } = await restoredBesideEmptyStore(
    t,
    url,
  );
  store.inactive = [report];
  const written: unknown[] = [];
  store.onWrite = (entries) => void written.push(...entries.map(({ value }) => value));
  projector.wake();
  await projector.nextPass();
  t.same(await states(), { status: 'REVOKED', goLive: 0 });
  t.notMatch(written, [{ keyId, status: 'ACTIVE' }]);
  t.same(await differences(database, store), []);
  const held = await listHeldBack(database, paging);
  t.same(
    held.items.map(({ id, source }) => [id, source]).toSorted(),
    [
      [keyId, 'g'],
      [merchantId, 'g'],
    ].toSorted(),
  );
  t.match(await database.selectFrom('restores').selectAll().execute(), [{ is_certain: 1 }]);
  t.same(store.inactive, [], 'and the report is removed');
  t.match(
    logged.find(({ message }) => message.startsWith('the database lacks changes that the store or a gateway knows')),
    { details: { heldBack: 2 } },
  );
});

onEachDatabase('a report that comes when all is written is held back before the gateway is granted', async (t, url) => {
  const { database, projection, report, rosterOf, states, store } = await restoredBesideEmptyStore(t, url);
  const next = projection('next');
  await next.run();
  t.same(await states(), { status: 'ACTIVE', goLive: 1 });
  t.match(await database.selectFrom('restores').selectAll().execute(), [{ is_certain: 0 }]);
  store.inactive = [report];
  await rosterOf(next).look();
  t.same(await states(), { status: 'REVOKED', goLive: 0 });
  t.match(await database.selectFrom('restores').selectAll().execute(), [{ is_certain: 1 }]);
  t.same(store.inactive, []);
});

onEachDatabase('a report is read again when the comparison was interrupted', async (t, url) => {
  const { keyId, projection, report, states, store } = await restoredBesideEmptyStore(t, url);
  store.inactive = [report];
  store.fails = (call) => (call === 'names' ? 'before' : null);
  const first = projection('first');
  await t.rejects(first.run());
  await first.end();
  store.fails = () => null;
  const written: unknown[] = [];
  store.onWrite = (entries) => void written.push(...entries.map(({ value }) => value));
  await projection('second').run();
  t.same(await states(), { status: 'REVOKED', goLive: 0 });
  t.ok(written.length > 0);
  t.notMatch(written, [{ keyId, status: 'ACTIVE' }]);
});

onEachDatabase('a report counts only where the database may lack changes', async (t, url) => {
  const { context, database, projection, report, rosterOf, states, store, time } = await restoredBesideEmptyStore(
    t,
    url,
  );
  const next = projection('next');
  await next.run();
  time.advance(86_400_001);
  store.inactive = [report];
  await rosterOf(next).look();
  t.same(
    await states(),
    { status: 'ACTIVE', goLive: 1 },
    'not a day after a restore: somebody else may have written it',
  );
  t.same(store.inactive, []);

  await database.deleteFrom('restores').execute();
  await createMerchant(context, 'test', { name: 'y' });
  await next.run();
  store.inactive = [report];
  await rosterOf(next).look();
  t.same(await states(), { status: 'ACTIVE', goLive: 1 }, 'nor without one');
  t.same(store.inactive, []);
});

for (const isSameProcess of [true, false]) {
  const who = isSameProcess ? 'the same process' : 'another process';
  onEachDatabase(`what an interrupted comparison had to hold back is held back by ${who}`, async (t, url) => {
    const { database, projection, putBack, store } = await revokedSinceBackup(t, url);
    await putBack();

    const first = projection('first');
    store.fails = (call) => (call === 'names' ? 'before' : null);
    await t.rejects(first.run());
    store.fails = () => null;
    if (!isSameProcess) await first.end();
    await (isSameProcess ? first : projection('second')).run();
    t.match(await database.selectFrom('api_keys').select('status').execute(), [{ status: 'REVOKED' }]);
    t.same(await differences(database, store), []);
  });
}

onEachDatabase('a merchant that is changed before the comparison is held back all the same', async (t, url) => {
  const { context, database, projection } = await projectionFixture(t, url);
  const one = projection('one');
  await one.run();
  const { id } = await createMerchant(context, 'test', { name: 'x', goLive: true });
  await one.run();
  const putBack = await backUp(database);
  await changeMerchant(context, 'test', id, { status: 'SUSPENDED' });
  await one.run();
  await one.end();
  await putBack();

  for (const name of ['a', 'b', 'c']) await changeMerchant(context, 'test', id, { name });
  await projection('next').run();
  t.match(await database.selectFrom('merchants').select(['status', 'name']).execute(), [
    { status: 'SUSPENDED', name: 'c' },
  ]);
});

onEachDatabase('a damaged record that is held back stops no comparison, and is inactive', async (t, url) => {
  const { database, keyId, merchantId, projection, report, store } = await restoredBesideEmptyStore(t, url);
  const damaged = { status: 'REVOKED\u0000', expiresAt: 'never' };
  store.inactive = [
    { ...report, entries: report.entries.map((one) => ({ ...one, value: { ...one.value, ...damaged } })) },
  ];
  await projection('next').run();
  t.match(await database.selectFrom('api_keys').selectAll().execute(), [
    { key_id: keyId, status: 'INACTIVE', expires_at: null },
  ]);
  t.match(await database.selectFrom('merchants').selectAll().execute(), [{ id: merchantId, status: 'INACTIVE' }]);
  t.same(await differences(database, store), []);
});

onEachDatabase('a store that was being filled when the database was restored still knows', async (t, url) => {
  const { database, keyId, projection, putBack, store, time } = await revokedSinceBackup(t, url);
  // It was emptied, and the registry ended after it had written some records again.
  store.meta = { generation: null, filling: 'generation-later' };
  [store.revision, store.change] = [0, null];
  await putBack();
  time.advance(60_000);
  const next = projection('next');
  await next.run();
  const key = await database.selectFrom('api_keys').select('status').where('key_id', '=', keyId).executeTakeFirst();
  t.equal(key?.status, 'REVOKED');
});
