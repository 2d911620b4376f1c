import { randomBytes } from 'node:crypto';
import type { Test } from 'tap';
import { lookupIdOf } from '../../src/gateway/api-key.js';
import type { InactiveReport } from '../../src/gateway/store-ports.js';
import { noRules } from '../../src/registry/approvals/guard.js';
import { applyConfiguredRules } from '../../src/registry/approvals/rules.js';
import { registryAuthor } from '../../src/registry/events/author.js';
import { deleteEvents } from '../../src/registry/events/repository.js';
import { knownGateways } from '../../src/registry/gateways/known-gateways.js';
import { Roster } from '../../src/registry/gateways/roster.js';
import { createKey, resetKey, revokeKey } from '../../src/registry/keys/key-changes.js';
import { changeMerchant, createMerchant } from '../../src/registry/merchants/repository.js';
import { keyEntry, merchantEntry, storedKeys } from '../../src/registry/projection/current-records.js';
import type { RegistryDatabase } from '../../src/registry/registry-database.js';
import { holdBack, lift, listHeldBack } from '../../src/registry/restores/held-back.js';
import { laterRecords } from '../../src/registry/restores/later-records.js';
import { noteRestore } from '../../src/registry/restores/restores.js';
import { onEachDatabase } from '../database/each-database.js';
import { until } from '../registry/manual-time.js';
import { gateway } from '../registry/memory-records-store.js';
import { projectionFixture } from '../registry/projection-fixture.js';
import { pepper, registryFixture } from '../registry/registry-fixture.js';
import { chainStart } from '../../src/evidence/event-chain.js';
import { withoutTriggers } from '../registry/without-triggers.js';
import { differences, waitingChanges } from '../registry/stored-state.js';

const noLog = { error: () => undefined, warn: () => undefined, info: () => undefined };
const paging = { page: 1, perPage: 100 };
const tables = ['merchants', 'api_keys', 'events', 'outbox', 'revision', 'former_generations', 'gateways'] as const;

/** Copies the tables of a database. @returns a function that restores them */
async function backUp(database: RegistryDatabase): Promise<() => Promise<void>> {
  const backup = await Promise.all(tables.map((table) => database.selectFrom(table).selectAll().execute()));
  return async () => {
    // A restore puts back the files of a database, so no trigger runs. The chain of events is not under test here, and
    // begins again.
    await withoutTriggers(database);
    await database.deleteFrom('event_chain').execute();
    await database.updateTable('event_tail').set({ position: 0, hash: chainStart.hash }).execute();
    for (const table of tables.toReversed()) await database.deleteFrom(table).execute();
    for (const [index, table] of tables.entries()) {
      // `seq` is an identity column: it does not accept a given number.
      const rows = (backup[index] ?? []).map((row) => ('seq' in row ? { ...row, seq: undefined } : row));
      if (rows.length > 0) await database.insertInto(table).values(rows).execute();
    }
  };
}

/** A key that was revoked after a backup. The registry has ended, and `restore` restores the backup. */
async function revokedSinceBackup(t: Test, url: string) {
  const fixture = await projectionFixture(t, url);
  const { context, database, projection } = fixture;
  const one = projection('one');
  await one.run();
  const { id } = await createMerchant(context, registryAuthor, { name: 'x', goLive: true });
  const { keyId } = await createKey(context, registryAuthor, id, { environment: 'live' });
  await one.run();
  const restore = await backUp(database);
  await revokeKey(context, registryAuthor, keyId);
  await one.run();
  await one.end();
  return { ...fixture, keyId, restore };
}

onEachDatabase(
  'database rollback: a key revoked after the backup stays inactive after a restore, until it is released',
  async (t, url) => {
    const { context, database, projection, store, time } = await projectionFixture(t, url);
    const one = projection('one');
    await one.run();
    const { id } = await createMerchant(context, registryAuthor, { name: 'x', goLive: true });
    const suspended = await createMerchant(context, registryAuthor, { name: 'y' });
    const live = { environment: 'live' } as const;
    const [good, revoked, reset] = [
      await createKey(context, registryAuthor, id, live),
      await createKey(context, registryAuthor, id, live),
      await createKey(context, registryAuthor, id, live),
    ];
    await one.run();
    const restore = await backUp(database);

    await revokeKey(context, registryAuthor, revoked.keyId);
    await resetKey(context, registryAuthor, reset.keyId, { graceSeconds: 3600 });
    await changeMerchant(context, registryAuthor, suspended.id, { status: 'SUSPENDED' });
    await changeMerchant(context, registryAuthor, id, { goLive: false, name: 'another name' });
    await one.run();
    await one.end();

    await restore();
    time.advance(60_000);
    const next = projection('next');
    await next.run();
    const status = async (keyId: string) =>
      (await database.selectFrom('api_keys').selectAll().where('key_id', '=', keyId).executeTakeFirstOrThrow()).status;
    t.equal(await status(revoked.keyId), 'REVOKED', 'a key that is revoked in Redis stays revoked');
    t.equal(await status(good.keyId), 'ACTIVE');
    const ended = await database
      .selectFrom('api_keys')
      .selectAll()
      .where('key_id', '=', reset.keyId)
      .executeTakeFirstOrThrow();
    t.equal(ended.expires_at, time.now() - 60_000 + 3_600_000, 'the reset key still expires');
    t.match(await database.selectFrom('merchants').selectAll().where('id', '=', suspended.id).execute(), [
      { status: 'SUSPENDED' },
    ]);
    t.match(await database.selectFrom('merchants').selectAll().where('id', '=', id).execute(), [
      { go_live: 0, name: 'x' },
    ]);
    t.same(await differences(database, store), [], 'the records match the database');

    const held = await listHeldBack(database, paging);
    t.equal(held.totalRecords, 4);
    t.same(held.items.map((item) => item.id).toSorted(), [revoked.keyId, reset.keyId, suspended.id, id].toSorted());
    t.match(held.items[0], { source: 'store', foundAt: new Date(time.now()).toISOString() });
    t.match(await database.selectFrom('restores').selectAll().execute(), [
      { found_at: time.now(), newest_at: time.now() - 60_000, is_certain: 1 },
    ]);

    const ada = { ...registryAuthor, actor: 'ada' };
    await lift(context, ada, revoked.keyId);
    await lift(context, ada, id);
    await lift(context, ada, reset.keyId);
    t.equal(await status(revoked.keyId), 'ACTIVE');
    t.match(await database.selectFrom('merchants').selectAll().where('id', '=', id).execute(), [{ go_live: 1 }]);
    t.equal((await listHeldBack(database, paging)).totalRecords, 1);
    await t.rejects(lift(context, registryAuthor, revoked.keyId), { message: /not found/i });
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

onEachDatabase('database rollback: lifting undoes no decision that was made after the restore', async (t, url) => {
  const { context, database, time } = await projectionFixture(t, url);
  const live = await createMerchant(context, registryAuthor, { name: 'x', goLive: true });
  const fraud = await createMerchant(context, registryAuthor, { name: 'y', goLive: true });
  const held = await createKey(context, registryAuthor, live.id, { environment: 'live' });
  const ending = await createKey(context, registryAuthor, live.id, { environment: 'live' });
  const replaced = await createKey(context, registryAuthor, live.id, { environment: 'live' });
  const rowOf = async (keyId: string) => storedKeys(database).where('key_id', '=', keyId).executeTakeFirstOrThrow();
  const merchantOf = async (id: string) =>
    database.selectFrom('merchants').selectAll().where('id', '=', id).executeTakeFirstOrThrow();
  const later = new Date(time.now() + 60_000).toISOString();
  const known = [];
  for (const { keyId } of [held, ending, replaced]) {
    const { name, value } = keyEntry(await rowOf(keyId));
    const ended = keyId === held.keyId ? { status: 'INACTIVE' } : { expiresAt: later };
    known.push({ name, value: { ...value, revision: 90, ...ended } });
  }
  for (const { id } of [live, fraud]) {
    const { name, value } = merchantEntry(await merchantOf(id));
    known.push({ name, value: { ...value, revision: 91, goLive: false } });
  }
  t.equal(await holdBack(context, known, 'store'), 5);

  await revokeKey(context, registryAuthor, held.keyId);
  await revokeKey(context, registryAuthor, ending.keyId);
  await resetKey(context, registryAuthor, replaced.keyId, {});
  await changeMerchant(context, registryAuthor, fraud.id, { status: 'SUSPENDED' });
  for (const id of [held.keyId, ending.keyId, replaced.keyId, fraud.id])
    await t.rejects(lift(context, registryAuthor, id), { message: /not found/i });
  for (const { keyId } of [held, ending, replaced]) t.equal((await rowOf(keyId)).status, 'REVOKED');
  t.match(await merchantOf(fraud.id), { status: 'SUSPENDED', go_live: 0 });

  await changeMerchant(context, registryAuthor, live.id, { name: 'a name decides nothing' });
  const rules = { database, clock: time, random: randomBytes };
  await applyConfiguredRules(rules, { ...noRules, goLive: true }, { ...noLog });
  await t.rejects(lift(context, registryAuthor, live.id), { statusCode: 409, code: 'approval_required' });
  t.match(await merchantOf(live.id), { go_live: 0 });
  await applyConfiguredRules(rules, noRules, { ...noLog });
  await lift(context, registryAuthor, live.id);
  t.match(await merchantOf(live.id), { go_live: 1 });
});

onEachDatabase('database rollback: a key that is held back as revoked can be revoked for good', async (t, url) => {
  const { context, database } = await projectionFixture(t, url);
  const { id } = await createMerchant(context, registryAuthor, { name: 'x' });
  const { keyId } = await createKey(context, registryAuthor, id, { environment: 'live' });
  const row = await storedKeys(database).where('key_id', '=', keyId).executeTakeFirstOrThrow();
  const { name, value } = keyEntry(row);
  t.equal(await holdBack(context, [{ name, value: { ...value, revision: 90, status: 'REVOKED' } }], 'store'), 1);
  await revokeKey(context, registryAuthor, keyId);
  await t.rejects(lift(context, registryAuthor, keyId), { message: /not found/i });
  const events = await database.selectFrom('events').select('action').where('key_id', '=', keyId).execute();
  t.match(events.at(-1), { action: 'key.revoked' });
});

onEachDatabase(
  'database rollback: if no process knows the lost changes, the registry reports since when changes may be missing',
  async (t, url) => {
    const { context, database, projection, store, time } = await projectionFixture(t, url);
    const one = projection('one');
    await one.run();
    await createMerchant(context, registryAuthor, { name: 'x' });
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
  },
);

/**
 * A database that lacks two changes, and an empty store. The changes revoked a key, and set `goLive` of its merchant to
 * false. `report` is a gateway's report of both.
 */
async function restoredBesideEmptyStore(t: Parameters<typeof projectionFixture>[0], url: string) {
  const fixture = await projectionFixture(t, url);
  const { context, database, projection, store } = fixture;
  const [former, one] = [projection('former'), projection('one')];
  await former.run();
  await former.end();
  await one.run();
  const { id } = await createMerchant(context, registryAuthor, { name: 'x', goLive: true });
  const key = await createKey(context, registryAuthor, id, { environment: 'live' });
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
  return { ...fixture, former, one, keyId: key.keyId, merchantId: id, report, rosterOf, states };
}

onEachDatabase(
  'database rollback: a revocation that a gateway reports is held back before any write',
  async (t, url) => {
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
      logged.find(({ message }) => message.includes('the database was restored to an earlier state')),
      { details: { heldBack: 2 } },
    );
  },
);

onEachDatabase(
  'database rollback: a revocation reported after the full write is held back before the gateway gets its grant',
  async (t, url) => {
    const { database, projection, report, rosterOf, states, store } = await restoredBesideEmptyStore(t, url);
    const next = projection('next');
    await next.run();
    t.same(await states(), { status: 'ACTIVE', goLive: 1 });
    t.match(await database.selectFrom('restores').selectAll().execute(), [{ is_certain: 0 }]);
    store.inactive = [report];
    await rosterOf(next).update();
    t.same(await states(), { status: 'REVOKED', goLive: 0 });
    t.match(await database.selectFrom('restores').selectAll().execute(), [{ is_certain: 1 }]);
    t.same(store.inactive, []);
  },
);

// Regression: if the registry ended right after it had held the reported key back (set it to REVOKED), `restores list`
// never called the restore certain.
onEachDatabase(
  'database rollback: a restore is certain as soon as a reported revocation is held back',
  async (t, url) => {
    const { database, projection, report, rosterOf, states, store } = await restoredBesideEmptyStore(t, url);
    const next = projection('next');
    await next.run();
    store.inactive = [report];
    const removeReports = store.removeReports.bind(store);
    store.removeReports = () => Promise.reject(new Error('the registry ends here'));
    await t.rejects(rosterOf(next).update(), /the registry ends here/);
    t.same(await states(), { status: 'REVOKED', goLive: 0 });
    t.match(await database.selectFrom('restores').selectAll().execute(), [{ is_certain: 1 }]);
    store.removeReports = removeReports;
    await rosterOf(next).update();
    t.match(await database.selectFrom('restores').selectAll().execute(), [{ is_certain: 1 }]);
    t.same(store.inactive, []);
  },
);

onEachDatabase(
  'database rollback: a registry that takes over again does not rely on what it saw before',
  async (t, url) => {
    const { database, former, keyId, report, states, store } = await restoredBesideEmptyStore(t, url);
    store.inactive = [report];
    const written: unknown[] = [];
    store.onWrite = (entries) => void written.push(...entries.map(({ value }) => value));
    await former.run();
    t.same(await states(), { status: 'REVOKED', goLive: 0 });
    t.notMatch(written, [{ keyId, status: 'ACTIVE' }]);
    const { isComplete } = await knownGateways({ database, store, longestLifetimeMilliseconds: 31_000 });
    t.equal(isComplete, false, 'unknown gateways could use old records');
  },
);

onEachDatabase(
  'database rollback: a registry that has seen another one write relies on nothing, even if the database lacks that',
  async (t, url) => {
    const { database, former, one, report, states, store } = await restoredBesideEmptyStore(t, url);
    await one.run();
    await former.run(); // does not get the lease, and sees that the other registry has written
    [store.meta, store.revision, store.change] = [null, 0, null];
    store.records.clear();
    store.inactive = [report];
    await database.updateTable('projector').set({ holder: 'former', lease_ends_at: 0 }).execute();
    await former.run();
    t.same(await states(), { status: 'REVOKED', goLive: 0 });
  },
);

onEachDatabase('database rollback: a decision to keep a held-back merchant as it is is an event', async (t, url) => {
  const { context, database } = await projectionFixture(t, url);
  const { id } = await createMerchant(context, registryAuthor, { name: 'x' });
  const row = await database.selectFrom('merchants').selectAll().where('id', '=', id).executeTakeFirstOrThrow();
  const { name, value } = merchantEntry(row);
  t.equal(await holdBack(context, [{ name, value: { ...value, revision: 90, status: 'INACTIVE' } }], 'store'), 1);
  await changeMerchant(context, registryAuthor, id, { status: 'INACTIVE' });
  await t.rejects(lift(context, registryAuthor, id), { message: /not found/i });
  const events = await database.selectFrom('events').select('action').where('merchant_id', '=', id).execute();
  t.match(events.at(-1), { action: 'merchant.changed' });
});

onEachDatabase('a gateway’s report is read again after an interrupted comparison', async (t, url) => {
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

onEachDatabase('a gateway’s report counts only when the database may lack changes', async (t, url) => {
  const { context, database, projection, report, rosterOf, states, store, time } = await restoredBesideEmptyStore(
    t,
    url,
  );
  const next = projection('next');
  await next.run();
  time.advance(86_400_001);
  store.inactive = [report];
  await rosterOf(next).update();
  t.same(
    await states(),
    { status: 'ACTIVE', goLive: 1 },
    'ignored more than a day after a restore: somebody else may have written it',
  );
  t.same(store.inactive, []);

  await database.deleteFrom('restores').execute();
  await createMerchant(context, registryAuthor, { name: 'y' });
  await next.run();
  store.inactive = [report];
  await rosterOf(next).update();
  t.same(await states(), { status: 'ACTIVE', goLive: 1 }, 'ignored without a restore');
  t.same(store.inactive, []);
});

for (const isSameProcess of [true, false]) {
  const who = isSameProcess ? 'the same process' : 'another process';
  onEachDatabase(`after an interrupted comparison ${who} holds back the records`, async (t, url) => {
    const { database, projection, restore, store } = await revokedSinceBackup(t, url);
    await restore();

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

// Regression: the registry first stored the new generation of the records, and then the row about the restore. If it
// ended in between, `restores list` stayed empty.
onEachDatabase('database rollback: a restore that could not be stored is found again', async (t, url) => {
  const { database, projection, restore } = await revokedSinceBackup(t, url);
  await restore();
  const first = projection('first');
  await database.schema.alterTable('restores').renameTo('away').execute();
  await t.rejects(first.run());
  await first.end();
  await database.schema.alterTable('away').renameTo('restores').execute();
  await projection('second').run();
  t.match(await database.selectFrom('restores').selectAll().execute(), [{ is_certain: 1 }]);
  t.match(await database.selectFrom('api_keys').select('status').execute(), [{ status: 'REVOKED' }]);
});

// After the restore, a change of the merchant reuses the revision of the suspension. An interrupted comparison of store
// and database raises the database's revision to that of the store. Regression: in the next comparison, the registry
// did not notice the reused revision. So it wrote the merchant as active.
for (const isInterrupted of [false, true]) {
  const when = isInterrupted ? ', also after an interrupted comparison' : '';
  onEachDatabase(`a merchant that changes between restore and comparison is still held back${when}`, async (t, url) => {
    const { context, database, projection, store } = await projectionFixture(t, url);
    const one = projection('one');
    await one.run();
    const { id } = await createMerchant(context, registryAuthor, { name: 'x', goLive: true });
    await one.run();
    const restore = await backUp(database);
    await changeMerchant(context, registryAuthor, id, { status: 'SUSPENDED' });
    await one.run();
    await one.end();
    await restore();

    for (const name of ['a', 'b', 'c']) await changeMerchant(context, registryAuthor, id, { name });
    if (isInterrupted) {
      const interrupted = projection('interrupted');
      store.fails = (call) => (call === 'names' ? 'before' : null);
      await t.rejects(interrupted.run(), /the store is away/);
      store.fails = () => null;
      await interrupted.end();
    }
    await projection('next').run();
    t.match(await database.selectFrom('merchants').select(['status', 'name']).execute(), [
      { status: 'SUSPENDED', name: 'c' },
    ]);
  });
}

// After the restore, another change reuses the revision of the suspension, and a change of the merchant gets a higher
// one. Regression: the suspended record in the store did not seem newer than the database. So the registry wrote the
// merchant as active.
for (const isMeanwhile of [false, true]) {
  const when = isMeanwhile ? 'during the comparison' : 'after another change';
  onEachDatabase(`a merchant whose record changes ${when} is still held back after a restore`, async (t, url) => {
    const { context, database, projection, store } = await projectionFixture(t, url);
    const one = projection('one');
    await one.run();
    const { id } = await createMerchant(context, registryAuthor, { name: 'x', goLive: true });
    await one.run();
    const restore = await backUp(database);
    const suspended = await changeMerchant(context, registryAuthor, id, { status: 'SUSPENDED' });
    await one.run();
    await one.end();
    await restore();

    const rename = async () => (await changeMerchant(context, registryAuthor, id, { name: 'renamed' })).revision;
    let renamed = 0;
    if (isMeanwhile) {
      const names = store.names.bind(store);
      store.names = async function* (prefix) {
        if (renamed === 0) renamed = await rename();
        yield* names(prefix);
      };
    } else {
      const { revision } = await createMerchant(context, registryAuthor, { name: 'reuses the revision' });
      t.equal(revision, suspended.revision);
      renamed = await rename();
    }
    const written: unknown[] = [];
    store.onWrite = (entries) => void written.push(...entries.map(({ value }) => value));
    await projection('next').run();
    t.ok(renamed > suspended.revision);
    t.match(await database.selectFrom('merchants').selectAll().where('id', '=', id).execute(), [
      { status: 'SUSPENDED', name: 'renamed', go_live: 1 },
    ]);
    const active = written.filter((value) => JSON.stringify(value).includes(`"merchantId":"${id}"`));
    t.same(new Set(active.map((value) => (value as { status: string }).status)), new Set(['SUSPENDED']));
    t.match((await listHeldBack(database, paging)).items, [{ kind: 'merchant', merchantId: id, source: 'store' }]);
    t.match(await database.selectFrom('restores').selectAll().execute(), [{ is_certain: 1 }]);
    t.same(await differences(database, store), []);
  });
}

// Regression: if one restriction of a record was not lifted, the registry put all restrictions of the record back in
// force. So the merchant was no longer live, although an operator had taken it live after the restore.
onEachDatabase('a merchant that goes live after a restore is held back only as suspended', async (t, url) => {
  const { context, database, projection, store } = await projectionFixture(t, url);
  const one = projection('one');
  await one.run();
  const { id } = await createMerchant(context, registryAuthor, { name: 'x' });
  await one.run();
  const restore = await backUp(database);
  const suspended = await changeMerchant(context, registryAuthor, id, { status: 'SUSPENDED' });
  await one.run();
  await one.end();
  await restore();

  const { revision } = await createMerchant(context, registryAuthor, { name: 'reuses the revision' });
  t.equal(revision, suspended.revision);
  await changeMerchant(context, registryAuthor, id, { goLive: true });
  await projection('next').run();
  t.match(await database.selectFrom('merchants').selectAll().where('id', '=', id).execute(), [
    { status: 'SUSPENDED', go_live: 1 },
  ]);
  t.match((await listHeldBack(database, paging)).items, [{ kind: 'merchant', merchantId: id, source: 'store' }]);
  t.same(await differences(database, store), []);
});

onEachDatabase(
  'a key that is reactivated after a restore is held back only with its earlier expiry',
  async (t, url) => {
    const { context, database, time } = await projectionFixture(t, url);
    const { id } = await createMerchant(context, registryAuthor, { name: 'x', goLive: true });
    const { keyId } = await createKey(context, registryAuthor, id, { environment: 'live' });
    const rowOf = () => storedKeys(database).where('key_id', '=', keyId).executeTakeFirstOrThrow();
    const { name, value } = keyEntry(await rowOf());
    t.equal(await holdBack(context, [{ name, value: { ...value, revision: 90, status: 'INACTIVE' } }], 'store'), 1);
    const { revision } = await rowOf();
    await lift(context, registryAuthor, keyId);

    const end = time.now() + 60_000;
    const expiring = { ...value, revision, status: 'INACTIVE', expiresAt: new Date(end).toISOString() };
    t.equal(await holdBack(context, [{ name, value: expiring }], 'store'), 1);
    t.match(await rowOf(), { status: 'ACTIVE', expires_at: end });
  },
);

// Regression: the query returned the allowlists of all changes of a merchant, which can have some hundred KiB each.
onEachDatabase('the search for the change that lifted a restriction reads no allowlists', async (t, url) => {
  const { context, database } = await projectionFixture(t, url);
  const { id } = await createMerchant(context, registryAuthor, { name: 'x' });
  await changeMerchant(context, registryAuthor, id, { status: 'SUSPENDED' });
  const row = await database.selectFrom('merchants').selectAll().where('id', '=', id).executeTakeFirstOrThrow();
  await changeMerchant(context, registryAuthor, id, { ipAllowlist: ['8.8.4.4'] });
  await changeMerchant(context, registryAuthor, id, { ipAllowlist: null });
  await changeMerchant(context, registryAuthor, id, { status: 'ACTIVE' });
  const rows: unknown[] = [];
  const watched = database.withPlugin({
    transformQuery: ({ node }) => node,
    transformResult: ({ result }) => {
      rows.push(...result.rows);
      return Promise.resolve(result);
    },
  });
  const { keys, merchants } = await laterRecords(watched, [merchantEntry(row)], 0);
  t.same([...keys, ...merchants], [], 'the change that lifted the restriction is found');
  t.match(JSON.stringify(rows), 'SUSPENDED');
  t.notMatch(JSON.stringify(rows), '8.8.4.4');
});

// The registry has published a change in the store, but the store's reply was lost, so the change is still in the
// outbox. Regression: the registry took the published change for another one with the same revision, and held the
// merchant back.
onEachDatabase('an announced change that is still in the outbox is no restore', async (t, url) => {
  const { context, database, projection, store } = await projectionFixture(t, url);
  const one = projection('one');
  await one.run();
  const { id } = await createMerchant(context, registryAuthor, { name: 'x' });
  await one.run();
  await changeMerchant(context, registryAuthor, id, { status: 'SUSPENDED' });
  store.fails = (call) => (call === 'publish' ? 'after' : null);
  await t.rejects(one.run(), /the store went away/);
  store.fails = () => null;
  await one.end();
  t.equal(store.revision, 2);
  t.equal(await waitingChanges(database), 1);

  await changeMerchant(context, registryAuthor, id, { status: 'ACTIVE' });
  store.server = 'run-2';
  await projection('next').run();
  t.match(await database.selectFrom('merchants').select('status').execute(), [{ status: 'ACTIVE' }]);
  t.equal((await listHeldBack(database, paging)).totalRecords, 0);
  t.same(await database.selectFrom('restores').selectAll().execute(), []);
  t.same(await differences(database, store), []);
});

onEachDatabase('a report of an announced change that is still in the outbox holds nothing back', async (t, url) => {
  const { context, database, projection, store } = await projectionFixture(t, url);
  const one = projection('one');
  await one.run();
  const { id } = await createMerchant(context, registryAuthor, { name: 'x' });
  await one.run();
  const generation = store.meta?.generation ?? '';
  const { revision } = await changeMerchant(context, registryAuthor, id, { status: 'SUSPENDED' });
  store.fails = (call) => (call === 'publish' ? 'after' : null);
  await t.rejects(one.run(), /the store went away/);
  store.fails = () => null;
  await one.end();

  const name = `merchant:${id}`;
  const entries = [{ name, value: store.records.get(name) ?? {} }];
  t.match(entries, [{ value: { status: 'SUSPENDED', revision } }]);
  await changeMerchant(context, registryAuthor, id, { status: 'ACTIVE' });
  [store.meta, store.revision, store.change] = [null, 0, null];
  store.records.clear();
  store.inactive = [{ name: 'inactive:g:0', instanceId: 'g', generation, revision, isSealed: false, entries }];
  await projection('next').run();
  t.match(await database.selectFrom('merchants').select('status').execute(), [{ status: 'ACTIVE' }]);
  t.equal((await listHeldBack(database, paging)).totalRecords, 0);
  t.match(await database.selectFrom('restores').selectAll().execute(), [{ is_certain: 0 }]);
  t.same(store.inactive, []);
  t.same(await differences(database, store), []);
});

// The registry has rebuilt the store, but the store's reply was lost. Regression: the registry did not recognise the
// change that it had announced itself. It took that change for another one with the same revision.
for (const wasRestored of [false, true]) {
  const when = wasRestored ? ', also more than a day after a restore' : '';
  onEachDatabase(`a rebuild whose reply was lost undoes no change that follows${when}`, async (t, url) => {
    const { context, database, projection, store, time } = await projectionFixture(t, url);
    const one = projection('one');
    await one.run();
    if (wasRestored) await noteRestore({ database, clock: time }, true);
    time.advance(86_400_001);
    store.server = 'run-2';
    const { id } = await createMerchant(context, registryAuthor, { name: 'x' });
    store.fails = (call) => (call === 'complete' ? 'after' : null);
    await t.rejects(one.run(), /the store went away/);
    store.fails = () => null;
    t.match(store.records.get(`merchant:${id}`), { goLive: false });

    await changeMerchant(context, registryAuthor, id, { goLive: true });
    await one.run();
    t.match(await database.selectFrom('merchants').select('go_live').execute(), [{ go_live: 1 }]);
    t.equal((await listHeldBack(database, paging)).totalRecords, 0);
    t.same(await differences(database, store), []);
  });
}

/**
 * Renames the merchant. Returns the report of `restoredBesideEmptyStore` with the revision of this change, as if the
 * database had assigned the reported revision again.
 */
async function reusedReport({
  context,
  merchantId,
  report,
}: Pick<Awaited<ReturnType<typeof restoredBesideEmptyStore>>, 'context' | 'merchantId' | 'report'>) {
  const { revision } = await changeMerchant(context, registryAuthor, merchantId, { name: 'another name' });
  const entries = report.entries.map((one) => ({ ...one, value: { ...one.value, revision } }));
  return { ...report, revision, entries };
}

// Regression: the registry compared a gateway's report with the database only after it had written the records, unless
// the report had a higher revision than the database.
onEachDatabase('a reported revocation with a reused revision is held back before any write', async (t, url) => {
  const fixture = await restoredBesideEmptyStore(t, url);
  const { database, keyId, projection, states, store } = fixture;
  store.inactive = [await reusedReport(fixture)];
  const written: unknown[] = [];
  store.onWrite = (entries) => void written.push(...entries.map(({ value }) => value));
  await projection('next').run();
  t.same(await states(), { status: 'REVOKED', goLive: 0 });
  const keys = written.filter((value) => JSON.stringify(value).includes(`"keyId":"${keyId}"`));
  t.same(new Set(keys.map((value) => (value as { status: string }).status)), new Set(['REVOKED']));
  t.match(await database.selectFrom('restores').selectAll().execute(), [{ is_certain: 1 }]);
  t.same(store.inactive, []);
  t.same(await differences(database, store), []);
});

// Regression: the registry had already announced another change with the revision of the report. So the reported
// revocation did not seem newer than the database, and was not held back.
onEachDatabase('a late report with a reused revision is held back', async (t, url) => {
  const fixture = await restoredBesideEmptyStore(t, url);
  const { database, projection, rosterOf, states, store } = fixture;
  const report = await reusedReport(fixture);
  const next = projection('next');
  await next.run();
  t.same(await states(), { status: 'ACTIVE', goLive: 1 });
  store.inactive = [report];
  await rosterOf(next).update();
  t.same(await states(), { status: 'REVOKED', goLive: 0 });
  t.match(await database.selectFrom('restores').selectAll().execute(), [{ is_certain: 1 }]);
});

onEachDatabase('a record that was lifted is not held back again by the report of another gateway', async (t, url) => {
  const { context, database, keyId, merchantId, projection, report, rosterOf, states, store } =
    await restoredBesideEmptyStore(t, url);
  store.inactive = [report];
  const next = projection('next');
  await next.run();
  t.same(await states(), { status: 'REVOKED', goLive: 0 });
  for (const id of [keyId, merchantId]) await lift(context, registryAuthor, id);
  await next.run();
  store.inactive = [{ ...report, name: 'inactive:h:0', instanceId: 'h' }];
  await rosterOf(next).update();
  t.same(await states(), { status: 'ACTIVE', goLive: 1 });
  t.equal((await listHeldBack(database, paging)).totalRecords, 0);
  t.same(store.inactive, []);
});

type Fixture = Awaited<ReturnType<typeof projectionFixture>>;

/** Suspends and reactivates a merchant. `restoreStore` resets the store to its state between the two changes. */
async function reactivate(
  t: Test,
  { context, store }: Pick<Fixture, 'context' | 'store'>,
  one: ReturnType<Fixture['projection']>,
) {
  const { id } = await createMerchant(context, registryAuthor, { name: 'x' });
  await changeMerchant(context, registryAuthor, id, { status: 'SUSPENDED' });
  await one.run();
  const [name, { revision, change }] = [`merchant:${id}`, store];
  const old = { ...store.records.get(name) };
  t.match(old, { status: 'SUSPENDED' });
  await changeMerchant(context, registryAuthor, id, { status: 'ACTIVE' });
  const newest = await createMerchant(context, registryAuthor, { name: 'y' });
  await one.run();
  await one.end();
  const restoreStore = (): void => {
    store.records.set(name, old);
    [store.revision, store.change] = [revision, change];
  };
  return { id, newest, restoreStore };
}

for (const isRetained of [true, false]) {
  const events = isRetained ? 'has the event of a reactivation' : 'has deleted the event of a reactivation';
  onEachDatabase(`an old snapshot of the store undoes no change if the database ${events}`, async (t, url) => {
    const { context, database, projection, store } = await projectionFixture(t, url);
    const one = projection('one');
    await one.run();
    const { id, newest, restoreStore } = await reactivate(t, { context, store }, one);
    if (!isRetained) {
      await withoutTriggers(database);
      await database.deleteFrom('event_chain').execute();
      await database.deleteFrom('events').where('revision', '<', newest.revision).execute();
    }
    restoreStore();
    await projection('next').run();
    t.match(await database.selectFrom('merchants').select('status').where('id', '=', id).execute(), [
      { status: 'ACTIVE' },
    ]);
    t.equal((await listHeldBack(database, paging)).totalRecords, 0);
    t.match(await database.selectFrom('restores').selectAll().execute(), [{ is_certain: 0 }]);
    t.same(await differences(database, store), []);
  });
}

// Events are deleted by their time. So an event with a time in the future is kept for longer than events with higher
// revisions. Regression: from the low revision of the kept event, the registry concluded that all events since that
// revision still existed. But the event of the reactivation was deleted, so the suspension in the store seemed to be
// still in force.
onEachDatabase('an event that is kept longer than later ones makes no older record count', async (t, url) => {
  const { context, database, projection, store, time } = await projectionFixture(t, url);
  const one = projection('one');
  await one.run();
  time.advance(1_000);
  await createMerchant(context, registryAuthor, { name: 'in the future' });
  time.advance(-1_000);
  const { id, newest, restoreStore } = await reactivate(t, { context, store }, one);
  t.match(await deleteEvents(database, { after: 0, until: time.now(), now: time.now() }), { forgotten: 3 });
  const kept = await database.selectFrom('events').select('revision').orderBy('seq').execute();
  t.same(kept, [{ revision: 1 }, { revision: newest.revision }]);

  restoreStore();
  await projection('next').run();
  t.match(await database.selectFrom('merchants').select('status').where('id', '=', id).execute(), [
    { status: 'ACTIVE' },
  ]);
  t.equal((await listHeldBack(database, paging)).totalRecords, 0);
});

onEachDatabase('an interrupted rebuild undoes no reactivation that is not yet in the store', async (t, url) => {
  const { context, database, projection, store } = await projectionFixture(t, url);
  const one = projection('one');
  await one.run();
  const { id } = await createMerchant(context, registryAuthor, { name: 'x' });
  await changeMerchant(context, registryAuthor, id, { status: 'SUSPENDED' });
  await one.run();
  await changeMerchant(context, registryAuthor, id, { status: 'ACTIVE' });
  store.fails = (call) => (call === 'write' ? 'before' : null);
  await t.rejects(one.run(), /the store is away/, 'the change is not written');
  store.server = 'run-2';
  await t.rejects(one.run(), /the store is away/, 'the rebuild is interrupted');
  store.fails = () => null;
  await one.run();
  t.match(await database.selectFrom('merchants').select('status').execute(), [{ status: 'ACTIVE' }]);
  t.equal((await listHeldBack(database, paging)).totalRecords, 0);
  t.same(await differences(database, store), []);
});

// Regression: the registry held the reported record back and deleted the report, but `restores list` never called the
// restore certain.
onEachDatabase('a report that arrives after an interrupted rebuild makes the restore certain', async (t, url) => {
  const { context, database, merchantId, projection, report, states, store } = await restoredBesideEmptyStore(t, url);
  const restores = () => database.selectFrom('restores').select('is_certain').execute();
  const { revision } = await changeMerchant(context, registryAuthor, merchantId, { name: 'another name' });
  const interrupted = projection('interrupted');
  store.fails = (call) => (call === 'write' ? 'before' : null);
  await t.rejects(interrupted.run(), /the store is away/);
  store.fails = () => null;
  await interrupted.end();
  t.same(await restores(), [{ is_certain: 0 }]);

  const entries = report.entries.map((one) => ({ ...one, value: { ...one.value, revision } }));
  store.inactive = [{ ...report, revision, entries }];
  await projection('next').run();
  t.same(await restores(), [{ is_certain: 1 }]);
  t.same(
    await states(),
    { status: 'REVOKED', goLive: 0 },
    'also if the database has reused the revision of the report for a change of the merchant',
  );
  t.same(await differences(database, store), []);
});

onEachDatabase('a malformed record that is held back does not stop the comparison and is inactive', async (t, url) => {
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

onEachDatabase('a store that was being filled during the database restore still counts as evidence', async (t, url) => {
  const { database, keyId, projection, restore, store, time } = await revokedSinceBackup(t, url);
  // The store was emptied, and the registry ended after it had rewritten some of the records.
  store.meta = { generation: null, filling: 'generation-later' };
  [store.revision, store.change] = [0, null];
  await restore();
  time.advance(60_000);
  const next = projection('next');
  await next.run();
  const key = await database.selectFrom('api_keys').select('status').where('key_id', '=', keyId).executeTakeFirst();
  t.equal(key?.status, 'REVOKED');
});

// Regression: a database rollback was detected only by the acknowledgements of running gateways, and only once per
// process. Keys that the database had lost stayed accepted, and a revocation was confirmed before it was written.

/** A database rolled back to revision 2, and a store at revision 4 with a key that the database has lost. */
async function rolledBack(t: Test, url: string) {
  const fixture = await projectionFixture(t, url);
  const { context, database, projection, store } = fixture;
  const one = projection('one');
  const { id } = await createMerchant(context, registryAuthor, { name: 'x' });
  const kept = await createKey(context, registryAuthor, id, { environment: 'live' });
  await one.run();
  const { generation = '' } = store.meta ?? {};
  const lost = await createKey(context, registryAuthor, id, { environment: 'live' });
  await revokeKey(context, registryAuthor, lost.keyId);
  await one.run();
  t.equal(store.revision, 4);
  await withoutTriggers(database);
  await database.deleteFrom('events').where('revision', '>', 2).execute();
  await database.deleteFrom('api_keys').where('key_id', '=', lost.keyId).execute();
  await database.updateTable('revision').set({ value: 2 }).execute();
  return { ...fixture, generation, kept, one };
}

onEachDatabase('database rollback under a running registry is detected, also without a gateway', async (t, url) => {
  const { context, database, generation, kept, one, store } = await rolledBack(t, url);
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
  const { revision } = await revokeKey(context, registryAuthor, kept.keyId);
  t.notOk(await one.hasProjected(revision), 'a revision published before the rollback does not confirm it');
  await one.run();
  t.ok(await one.hasProjected(revision));
  t.same(await differences(database, store), [], 'a key that the database does not have is removed from the store');
  t.equal(await waitingChanges(database), 0);
  t.not(store.meta?.generation, generation);
  const next = await createMerchant(context, registryAuthor, { name: 'y' });
  t.equal(next.revision, 5);
  await one.run();
  t.same(await differences(database, store), []);
  t.ok(published.length > 1);
  t.same(
    published.filter((one) => one < 4),
    [],
    'a gateway would take a decreasing revision for a data loss of the store',
  );
});

// Regression: the database had lost the change, so its outbox did not list it. The registry concluded that the store
// had received the change.
onEachDatabase('database rollback: a change that a failover lost does not count as written', async (t, url) => {
  const { context, database, projection } = await projectionFixture(t, url);
  const one = projection('one');
  const { id } = await createMerchant(context, registryAuthor, { name: 'x' });
  const { keyId } = await createKey(context, registryAuthor, id, { environment: 'live' });
  await one.run();
  const { revision } = await revokeKey(context, registryAuthor, keyId);
  await database.deleteFrom('outbox').execute();
  await database
    .updateTable('revision')
    .set({ value: revision - 1 })
    .execute();
  t.notOk(await one.hasProjected(revision));
  t.ok(await one.hasProjected(revision - 1), 'the changes before it are written');
});

onEachDatabase('database rollback while no registry ran is detected', async (t, url) => {
  const { context, database, generation, one, projection, store } = await rolledBack(t, url);
  await one.end();
  await projection('another').run();
  t.same(await differences(database, store), []);
  t.not(store.meta?.generation, generation);
  t.equal((await createMerchant(context, registryAuthor, { name: 'y' })).revision, 5);
});

onEachDatabase('database rollback together with Redis is detected by the published revision', async (t, url) => {
  const { context, database, one, store } = await rolledBack(t, url);
  store.revision = 2;
  await one.run();
  t.same(await differences(database, store), []);
  t.equal((await createMerchant(context, registryAuthor, { name: 'y' })).revision, 5);
});

onEachDatabase('database rollback: the next revision exceeds those of Redis and the gateways', async (t, url) => {
  const { context, one, store } = await rolledBack(t, url);
  store.live = [gateway('g', { revision: 9, acknowledges: false })];
  await one.run();
  t.equal((await createMerchant(context, registryAuthor, { name: 'y' })).revision, 10);
});

// A write of a closed connection can arrive late, and put an older record into the store than the database has.
// Regression: revoking the key again wrote nothing, and was confirmed.
onEachDatabase('revoking a key again rewrites its record, and that write confirms it', async (t, url) => {
  const { call, createKey, createMerchant, outwait, store } = await registryFixture(t, url);
  const { id } = await createMerchant();
  store.live = [gateway('a')];
  const { keyId, key } = await createKey(id);
  const name = `key:${lookupIdOf(key, pepper)}`;
  const old = store.records.get(name) ?? {};
  const revoke = () => call('POST', `/keys/${keyId}/revoke`);
  const first = await revoke();
  t.match(first, { status: 200, body: { data: { revision: 3, propagation: { gateways: 1, confirmed: 1 } } } });
  const events = (await call('GET', '/events')).body;

  store.records.set(name, old);
  t.same((await revoke()).body, first.body, 'the key is unchanged');
  t.match(store.records.get(name), { status: 'REVOKED', revision: 3 });
  t.same((await call('GET', '/events')).body, events, 'and so is the list of events');

  store.records.set(name, old);
  store.live = store.live.map((one) => ({ ...one, acknowledges: false }));
  t.match(
    await outwait(revoke(), 2),
    { status: 200, body: { data: { propagation: { gateways: 1, confirmed: 0, pending: [{ instanceId: 'a' }] } } } },
    'a gateway that acknowledged the first revocation may have read the old record since',
  );

  store.records.set(name, old);
  store.fails = (one) => (one === 'write' ? 'before' : null);
  t.match(await outwait(revoke(), 1), { status: 202, body: { data: { propagation: { projected: false } } } });
  store.fails = () => null;
  await outwait(revoke(), 2);
  await until(() => (store.records.get(name) as { status: string }).status === 'REVOKED');
});

// The store can come to hold an older record than the database, so that a suspended merchant is served. Regression:
// when an operator suspended the merchant again, the registry wrote nothing. But it reported the suspension as in force
// on every gateway.
onEachDatabase('suspending a merchant again rewrites its record, and that write confirms it', async (t, url) => {
  const { call, createMerchant, outwait, store } = await registryFixture(t, url);
  const { id } = await createMerchant();
  store.live = [gateway('a')];
  const name = `merchant:${id}`;
  const old = store.records.get(name) ?? {};
  const suspend = () => call('PATCH', `/merchants/${id}`, { body: { status: 'SUSPENDED' } });
  const first = await suspend();
  t.match(first, { status: 200, body: { data: { revision: 2, propagation: { gateways: 1, confirmed: 1 } } } });
  const events = (await call('GET', '/events')).body;

  store.records.set(name, old);
  t.same((await suspend()).body, first.body, 'the merchant is unchanged');
  t.match(store.records.get(name), { status: 'SUSPENDED', revision: 2 });
  t.same((await call('GET', '/events')).body, events, 'and so is the list of events');

  store.records.set(name, old);
  store.live = store.live.map((one) => ({ ...one, acknowledges: false }));
  t.match(
    await outwait(suspend(), 2),
    { status: 200, body: { data: { propagation: { gateways: 1, confirmed: 0, pending: [{ instanceId: 'a' }] } } } },
    'a gateway that acknowledged the first change may have read the old record since',
  );
});

// Regression: a registry on an empty database, perhaps from another directory or with a wrong name, removed every
// record from Redis. Each key of each merchant was rejected as unknown.
onEachDatabase('a registry on another database leaves the store unchanged', async (t, url) => {
  const { context, database, projection, store } = await projectionFixture(t, url);
  const meta = { version: 1, generation: 'of another registry', projectedAt: '2026-01-01T00:00:00.000Z' } as const;
  store.meta = meta;
  store.revision = 7;
  for (let count = 0; count < 5; count += 1) store.records.set(`key:${count}`, { revision: count });
  const before = store.text();
  const message = /another registry: of 5 records there, this database has 0\. Check registry\.database/;
  await t.rejects(projection('one').run(), message);
  const { id } = await createMerchant(context, registryAuthor, { name: 'x' });
  await createKey(context, registryAuthor, id, { environment: 'live' });
  await t.rejects(projection('one').run(), message, 'also when it has records of its own');
  t.equal(store.text(), before);

  store.meta = null;
  await projection('one').run();
  t.same(
    await differences(database, store),
    [],
    'an operator who wants the store to be replaced deletes the meta record',
  );
});

onEachDatabase('a store rolled back to an older generation is rewritten', async (t, url) => {
  const { context, database, projection, store } = await projectionFixture(t, url);
  const { id } = await createMerchant(context, registryAuthor, { name: 'x' });
  await createKey(context, registryAuthor, id, { environment: 'live' });
  await projection('one').run();
  store.meta = { version: 1, generation: 'before', projectedAt: '2026-01-01T00:00:00.000Z' };
  store.records.set('key:gone', { revision: 1 });
  await projection('one').run();
  t.same(await differences(database, store), []);
});

// Regression: a record with a higher revision than the database was never replaced. A later change of this record was
// confirmed, but did not reach the store.
onEachDatabase('a record of a later generation is replaced too', async (t, url) => {
  const { context, database, projection, store } = await projectionFixture(t, url);
  const { id } = await createMerchant(context, registryAuthor, { name: 'x' });
  const one = projection('one');
  await one.run();
  store.records.set(`merchant:${id}`, { ...store.records.get(`merchant:${id}`), status: 'OTHER', revision: 900 });
  await createKey(context, registryAuthor, id, { environment: 'live' });
  await one.run();
  t.match(store.records.get(`merchant:${id}`), { revision: 900 }, 'the record has not been replaced yet');
  store.meta = null;
  const restores = () => database.selectFrom('restores').select('is_certain').execute();
  t.same(await restores(), []);
  await t.rejects(one.run(), /a record of revision 900/);
  t.same(await restores(), [{ is_certain: 1 }]);
  await one.run();
  t.same(await restores(), [{ is_certain: 1 }], 'the rewrite adds no second entry');
  t.same(await differences(database, store), []);
  t.ok((await context.revision()) >= 900);
});

// The record is from a change with revision 3 that the database has lost. Since then, the database has reached revision
// 3 by other changes.
onEachDatabase(
  'a record of a lost generation is replaced even when the database has reached its revision',
  async (t, url) => {
    const { context, database, projection, store } = await projectionFixture(t, url);
    const { id } = await createMerchant(context, registryAuthor, { name: 'x' });
    const one = projection('one');
    await one.run();
    const lost = { ...store.records.get(`merchant:${id}`), name: 'lost', revision: 3 };
    store.records.set(`merchant:${id}`, lost);
    store.records.set('key:lost', { revision: 3 });
    store.meta = null;
    store.onWrite = async () => {
      store.onWrite = () => undefined;
      for (const name of ['y', 'z']) await createMerchant(context, registryAuthor, { name });
    };
    await one.run();
    t.same(await differences(database, store), [], 'after a full write');

    store.records.set(`merchant:${id}`, { ...lost, revision: 5 });
    await changeMerchant(context, registryAuthor, id, { name: 'changed' });
    store.onWrite = async () => {
      store.onWrite = () => undefined;
      await createMerchant(context, registryAuthor, { name: 'meanwhile' });
    };
    await one.run();
    t.same(await differences(database, store), [], 'after a change');
  },
);

// The first pass begins a new generation. Regression: when it was interrupted, every later pass took the store for that
// of another registry.
onEachDatabase('a restored database is projected, also after its first pass was interrupted', async (t, url) => {
  const { context, database, projection, store } = await projectionFixture(t, url);
  const { id } = await createMerchant(context, registryAuthor, { name: 'x' });
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

// PostgreSQL rejects a text with a NUL. Regression: with a NUL in a name in Redis every comparison failed, and nothing
// was projected any more.
onEachDatabase('a Redis name that no database can query is removed and stops no projection', async (t, url) => {
  const { context, database, projection, store } = await projectionFixture(t, url);
  const one = projection('one');
  await one.run();
  await createMerchant(context, registryAuthor, { name: 'x' });
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
