import { randomBytes } from 'node:crypto';
import t, { type Test } from 'tap';
import { registryAuthor } from '../../src/registry/events/author.js';
import { DatabaseError } from '../../src/database/database-error.js';
import { OldEvents } from '../../src/registry/events/old-events.js';
import { createKey, resetKey, revokeKey } from '../../src/registry/keys/key-changes.js';
import { createMerchant } from '../../src/registry/merchants/repository.js';
import { beginGeneration, databaseName, hasGeneration } from '../../src/registry/projection/history.js';
import { noteRestore } from '../../src/registry/restores/restores.js';
import { deleteEvents } from '../../src/registry/events/repository.js';
import { openRegistryDatabase } from '../../src/registry/registry-database.js';
import { startRegistry } from '../../src/registry/start-registry.js';
import { systemClock, systemTimers } from '../../src/cli/compose/system-clock.js';
import { MemoryRecordsStore } from './memory-records-store.js';
import { onEachDatabase } from '../database/each-database.js';
import { queryPlans } from '../database/query-plans.js';
import { projectionFixture } from './projection-fixture.js';

const day = 86_400_000;

/** A registry that retains events for the given number of days and may delete older ones. */
async function keepingEvents(t: Test, url: string, days = 30) {
  const fixture = await projectionFixture(t, url);
  const { database, time, projection } = fixture;
  const one = projection('one');
  await one.run();
  const monotonic = { ahead: 0 };
  const parts = { database, days, timers: time, clock: time, projection: one };
  const oldEvents = (more: object = {}): OldEvents =>
    new OldEvents({ ...parts, monotonic: () => time.now() - monotonic.ahead, ...more });
  const forget = async (events: OldEvents): Promise<void> => {
    while (await events.forget());
  };
  const insert = async (ages: readonly number[]): Promise<void> => {
    const common = { actor: 'test', merchant_id: 'm', key_id: null, before: null, after: null, revision: 1 };
    const rows = ages.map((age) => ({ ...common, action: 'merchant.changed', at: time.now() - age * day }));
    for (let from = 0; from < rows.length; from += 500)
      await database
        .insertInto('events')
        .values(rows.slice(from, from + 500))
        .execute();
  };
  const ages = async (): Promise<number[]> => {
    const rows = await database.selectFrom('events').select('at').orderBy('seq').execute();
    return rows.map(({ at }) => Math.round((time.now() - at) / day));
  };
  return { ...fixture, oldEvents, forget, insert, ages, one, clockAhead: monotonic };
}

onEachDatabase('events older than the retention period are deleted, in several batches', async (t, url) => {
  const { ages, forget, insert, oldEvents } = await keepingEvents(t, url);
  await insert([...Array<number>(1200).fill(40), 31, 30, 29, 0]);
  await forget(oldEvents());
  t.same(await ages(), [29, 0], 'an event exactly at the limit is deleted too');
});

onEachDatabase('the newest event is never deleted: after a restore, later changes are unknown', async (t, url) => {
  const { ages, database, forget, insert, oldEvents, time } = await keepingEvents(t, url);
  await insert([320, 300]);
  const events = oldEvents();
  await forget(events);
  t.same(await ages(), [320, 300], 'nothing is deleted while no later time is known');
  time.advance(31 * day);
  await forget(events);
  t.same(await ages(), [331]);
  await noteRestore({ database, clock: time }, false);
  t.match(await database.selectFrom('restores').select('newest_at').execute(), [{ newest_at: time.now() - 331 * day }]);
});

onEachDatabase('a clock that is set forward does not age events', async (t, url) => {
  const { ages, clockAhead, forget, insert, oldEvents, time } = await keepingEvents(t, url);
  await insert([10, 5, 0]);
  const events = oldEvents();
  await forget(events);
  time.advance(365 * day);
  clockAhead.ahead = 365 * day;
  await forget(events);
  t.equal((await ages()).length, 3, 'while the process is running');
  await forget(oldEvents());
  t.equal((await ages()).length, 3, 'and across a restart');
  // An event that was recorded while the clock was a year ahead.
  await insert([0]);
  time.advance(21 * day);
  await forget(events);
  t.same(await ages(), [391, 386, 21], 'events age with real time');
});

onEachDatabase('an event dated too early by a slow clock is as old as its predecessors', async (t, url) => {
  const { ages, forget, insert, oldEvents } = await keepingEvents(t, url);
  await insert([50, 10, 20_000, 5]);
  await forget(oldEvents());
  t.same(await ages(), [10, 20_000, 5]);
});

onEachDatabase('an event dated too late by a fast clock retains only itself', async (t, url) => {
  const { ages, forget, insert, oldEvents } = await keepingEvents(t, url);
  await insert([50, -3650, 40, 5]);
  await forget(oldEvents());
  t.same(await ages(), [-3650, 5]);
});

onEachDatabase('the reset of a key is known for as long as the key may be reset again', async (t, url) => {
  const { context, database, forget, oldEvents, time } = await keepingEvents(t, url, 1);
  const { id } = await createMerchant(context, registryAuthor, { name: 'x' });
  const { keyId } = await createKey(context, registryAuthor, id, { environment: 'live' });
  await resetKey(context, registryAuthor, keyId, { graceSeconds: 7 * 86_400 });
  const events = oldEvents();
  await forget(events);
  time.advance(3 * day);
  await createMerchant(context, registryAuthor, { name: 'y' });
  await forget(events);
  const actions = async () =>
    (await database.selectFrom('events').select('action').orderBy('seq').execute()).map(({ action }) => action);
  t.same(await actions(), ['key.reset', 'merchant.created']);
  const { expiresAt } = await resetKey(context, registryAuthor, keyId, { graceSeconds: 60 });
  t.equal(expiresAt, null, 'the successor has no expiry, like the first key, and not the end of the grace period');

  await database.updateTable('api_keys').set({ expires_at: 0 }).where('key_id', '=', keyId).execute();
  const held = { id: keyId, kind: 'key', merchant_id: id, source: 'store', was: '{}', found_at: 0 } as const;
  await database.insertInto('held_back').values(held).execute();
  time.advance(2 * day);
  await forget(events);
  t.ok((await actions()).includes('key.reset'), 'a held-back key may get its grace period back');
  await database.deleteFrom('held_back').execute();
  await forget(events);
  t.notOk((await actions()).includes('key.reset'));
});

onEachDatabase('only the projecting registry deletes events', async (t, url) => {
  const { ages, forget, insert, oldEvents, one, projection } = await keepingEvents(t, url);
  await insert([50, 40, 1]);
  await forget(oldEvents({ projection: projection('another') }));
  t.equal((await ages()).length, 3);
  await forget(oldEvents());
  t.equal((await ages()).length, 1);
  await one.end();
});

onEachDatabase('a failed deletion is logged once, and deleting resumes', async (t, url) => {
  const { ages, insert, logged, oldEvents, time } = await keepingEvents(t, url);
  await insert([50, 1]);
  const log = (details: object, message: string): void => void logged.push({ details, message });
  let fails = true;
  const lease = { take: () => (fails ? Promise.reject(new DatabaseError('away')) : Promise.resolve(true)) };
  const events = oldEvents({ projection: { settledIn: 1, lease }, logger: { error: log, warn: log, info: log } });
  events.start();
  const pass = async (): Promise<void> => {
    time.advance(60_000);
    for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => setTimeout(resolve, 5));
  };
  const about = () => logged.filter(({ message }) => message.includes('retention period'));
  for (let count = 0; about().length === 0 && count < 600; count += 1) await pass();
  await pass();
  t.equal(about().length, 1);
  fails = false;
  for (let count = 0; about().length === 1 && count < 600; count += 1) await pass();
  t.same(await ages(), [1]);
  t.match(about().at(-1), { details: { events: 1, days: 30 } });
  await events.stop();
});

t.test('old events are found by their number, and those to retain by their key', async (t) => {
  const file = `${t.testdir()}/registry.db`;
  const { database, insert, time } = await keepingEvents(t, `sqlite:${file}`);
  await insert([50, 40, 1]);
  const range = { after: 0, until: time.now() - 30 * day, now: time.now() };
  const plans = await queryPlans({ database, file }, (watched) => deleteEvents(watched, range));
  const ofEvents = plans.filter((plan) => /\bevents\b/.test(plan));
  t.equal(ofEvents.length, 3);
  for (const plan of ofEvents) t.match(plan, /SEARCH events USING INTEGER PRIMARY KEY/);
  for (const plan of plans) t.notMatch(plan, /SCAN|TEMP B-TREE/, plan);
});

onEachDatabase('the last thousand generations and the first one are retained', async (t, url) => {
  const { database } = await projectionFixture(t, url);
  const first = await databaseName(database);
  const name = (index: number): string => `h${`${index}`.padStart(6, '0')}`;
  const former = Array.from({ length: 1008 }, (_, index) => ({ generation: name(index) }));
  await database.insertInto('former_generations').values(former).execute();
  for (const index of [1008, 1009, 1010]) {
    const begun = { generation: name(index), revision: 0 };
    await database.transaction().execute((transaction) => beginGeneration(transaction, begun));
  }
  const { count } = await database
    .selectFrom('former_generations')
    .select((it) => it.fn.countAll<number>().as('count'))
    .executeTakeFirstOrThrow();
  t.equal(count, 1001);
  t.equal(await databaseName(database), first);
  t.same(await Promise.all([10, 9, 1009, 1010].map((index) => hasGeneration(database, name(index)))), [
    true,
    false,
    true,
    true,
  ]);
});

// Regression: when the registry noted a restore of the database, it searched all events for the latest time. On a large
// database this query exceeded the time limit of a statement, so the registry never rewrote the store.
onEachDatabase('changes are unknown since the event that was stored last, whatever its time', async (t, url) => {
  const { database, insert, time } = await keepingEvents(t, url);
  await insert([-3650, 2]);
  await noteRestore({ database, clock: time }, false);
  t.match(await database.selectFrom('restores').select('newest_at').execute(), [{ newest_at: time.now() - 2 * day }]);
});

onEachDatabase('the last hundred restores are retained', async (t, url) => {
  const { database, time } = await projectionFixture(t, url);
  for (let count = 0; count < 103; count += 1) {
    time.advance(1);
    await noteRestore({ database, clock: time }, false);
  }
  const rows = await database.selectFrom('restores').select('found_at').orderBy('seq').execute();
  t.equal(rows.length, 100);
  t.equal(rows.at(-1)?.found_at, time.now());
});

onEachDatabase('a revocation stays in force after its event was deleted', async (t, url) => {
  const { context, database, forget, oldEvents, time } = await keepingEvents(t, url, 1);
  const { id } = await createMerchant(context, registryAuthor, { name: 'x' });
  const { keyId } = await createKey(context, registryAuthor, id, { environment: 'live' });
  await revokeKey(context, registryAuthor, keyId);
  const events = oldEvents();
  await forget(events);
  time.advance(3 * day);
  await createMerchant(context, registryAuthor, { name: 'y' });
  await forget(events);
  t.equal((await database.selectFrom('events').selectAll().execute()).length, 1);
  t.match(await database.selectFrom('api_keys').selectAll().execute(), [{ key_id: keyId, status: 'REVOKED' }]);
});

onEachDatabase('a registry deletes old events only if a retention period is configured', async (t, url) => {
  // This must come first: testdir() empties the directory in which the database is created next.
  const tokenFile = `${t.testdir({ token: 'a-token-of-administrators-0123456789' })}/token`;
  const database = await openRegistryDatabase({ url, generation: 'r_1' });
  t.teardown(() => database.destroy());
  const event = { actor: 'test', action: 'merchant.changed', merchant_id: 'm', revision: 1 };
  const aged = (days: number) => ({ ...event, at: Date.now() - days * day });
  await database
    .insertInto('events')
    .values([aged(5), aged(3), aged(0)])
    .execute();
  const count = async (): Promise<number> => (await database.selectFrom('events').select('seq').execute()).length;
  const start = (eventsDays: number | null) =>
    startRegistry({
      ...{ host: '127.0.0.1', port: 0, databaseUrl: url, tokenFile, eventsDays, store: new MemoryRecordsStore() },
      ...{ clock: systemClock, timers: systemTimers, random: randomBytes, pepper: null, maxStaleSeconds: 30 },
      resources: new Set(['payouts']),
    });
  const forEver = await start(null);
  await new Promise((resolve) => setTimeout(resolve, 300));
  await forEver.close();
  t.equal(await count(), 3);
  const pruning = await start(4);
  t.teardown(() => pruning.close());
  // If the first round of deletions comes before the registry has compared its store with the database, the next round
  // is a minute later.
  for (let attempt = 0; attempt < 700 && (await count()) === 3; attempt += 1)
    await new Promise((resolve) => setTimeout(resolve, 100));
  t.equal(await count(), 2);
});
