import t from 'tap';
import { registryAuthor } from '../../src/registry/events/author.js';
import { createKey, revokeKey } from '../../src/registry/keys/key-changes.js';
import { createMerchant } from '../../src/registry/merchants/repository.js';
import { onEachDatabase, postgresAlone } from '../database/each-database.js';
import { migrateBeside, migrateBesideVacuum } from '../database/migrate-beside.js';
import { migrations } from '../../src/registry/migrations/migrations.js';
import { Roster } from '../../src/registry/gateways/roster.js';
import { knownGateways } from '../../src/registry/gateways/known-gateways.js';
import type { Projection } from '../../src/registry/projection/projection.js';
import { gateway, type TestGateway } from './memory-records-store.js';
import { projectionFixture } from './projection-fixture.js';

const longestLifetimeMilliseconds = 31_000;

/**
 * A projection and its roster, the list of gateways that may cache records. A function that `rosterOf` returns updates
 * the roster, and then runs the projection if the roster has work for it.
 */
async function rosterFixture(t: Parameters<typeof projectionFixture>[0], url: string) {
  const fixture = await projectionFixture(t, url);
  const { database, store, time } = fixture;
  const rosterOf = (projection: Projection) => {
    let isWoken = false;
    const roster = new Roster({
      ...{ database, store, projection, clock: time, timers: time, longestLifetimeMilliseconds },
      onWork: () => (isWoken = true),
    });
    return async () => {
      await roster.update();
      if (isWoken) await projection.run();
      isWoken = false;
    };
  };
  return {
    ...{ ...fixture, rosterOf },
    rows: () => database.selectFrom('gateways').select('instance_id').orderBy('instance_id').execute(),
    known: () => knownGateways({ database, store, longestLifetimeMilliseconds }),
    change: (instanceId: string, changes: Partial<TestGateway>) => {
      store.live = store.live.map((one) => (one.instanceId === instanceId ? { ...one, ...changes } : one));
    },
  };
}

onEachDatabase('a gateway gets its grant only after its enrolment is published', async (t, url) => {
  const { change, context, projection, rosterOf, rows, store } = await rosterFixture(t, url);
  const one = projection('one');
  await one.run();
  const updateRoster = rosterOf(one);
  store.live = [gateway('a', { beat: 7, lifetimeMilliseconds: 41_000 })];
  let woken = 0;
  const roster = new Roster({
    ...{
      database: context.database,
      store,
      projection: one,
      clock: context.clock,
      timers: { after: () => () => undefined },
    },
    ...{ longestLifetimeMilliseconds, onWork: () => void (woken += 1) },
  });
  await roster.update();
  t.same(await rows(), [{ instance_id: 'a' }]);
  t.equal(woken, 1, 'the projector is woken to publish the enrolment');
  await roster.update();
  t.equal(store.grants.size, 0, 'no grant before the change is published');
  await one.run();
  t.equal(store.revision, 1, 'the enrolment is a change with its own revision');
  await updateRoster();
  const generation = store.meta?.generation;
  const granted = { generation, beat: 7, lifetimeMilliseconds: 31_000, compared: true };
  t.same(store.grants.get('a'), granted, 'the grant does not exceed the lifetime in the row');

  const grants = (): number => store.calls.filter((call) => call === 'grant').length;
  const before = grants();
  await updateRoster();
  t.equal(grants(), before, 'an unchanged heartbeat is echoed only once');
  change('a', { beat: 8 });
  await updateRoster();
  t.match(store.grants.get('a'), { beat: 8 });
  change('a', { beat: 9, generation: 'of another time' });
  await updateRoster();
  t.match(store.grants.get('a'), { beat: 8 }, 'a heartbeat that acknowledges another generation is not echoed');
});

onEachDatabase('a row is deleted when its gateway has left or was silent for its lifetime', async (t, url) => {
  const { change, known, projection, rosterOf, rows, store } = await rosterFixture(t, url);
  const one = projection('one');
  await one.run();
  const updateRoster = rosterOf(one);
  store.live = [gateway('leaves'), gateway('vanishes'), gateway('stays')];
  await updateRoster();
  await updateRoster();
  t.equal(store.grants.size, 3);
  change('leaves', { leaving: true });
  change('vanishes', { silentMilliseconds: 30_999 });
  t.same(
    (await known()).gateways.map(({ instanceId }) => instanceId).toSorted(),
    ['stays', 'vanishes'],
    'a gateway is waited for until its last request is decided',
  );
  await updateRoster();
  t.same(await rows(), [{ instance_id: 'stays' }, { instance_id: 'vanishes' }]);
  change('vanishes', { silentMilliseconds: 31_000 });
  await updateRoster();
  t.same(await rows(), [{ instance_id: 'stays' }]);
  t.same([...store.grants.keys()], ['stays'], 'the grant is deleted with the row');
  t.same(
    store.live.map(({ instanceId }) => instanceId),
    ['stays'],
  );

  // Redis has lost the acknowledgement. The gateway is removed only after it has been silent for its whole lifetime,
  // because until then it may use its cache.
  store.live = [];
  store.silence = 30_000;
  await updateRoster();
  t.match(await known(), { gateways: [{ instanceId: 'stays', revision: null, isEnrolled: true }], isComplete: true });
  store.silence = 31_000;
  await updateRoster();
  t.same(await rows(), []);
});

onEachDatabase('a gateway of an earlier release is counted and acknowledges no change', async (t, url) => {
  const { change, known, projection, rosterOf, rows, store } = await rosterFixture(t, url);
  const one = projection('one');
  await one.run();
  const updateRoster = rosterOf(one);
  store.live = [gateway('old', { generation: null, beat: undefined as unknown as number })];
  await updateRoster();
  await updateRoster();
  t.equal(store.grants.size, 0, 'a gateway of an earlier release gets no grant');
  t.match(await known(), {
    gateways: [{ instanceId: 'old', revision: null, namesGeneration: false, isEnrolled: true }],
  });
  change('old', { silentMilliseconds: 31_000 });
  await updateRoster();
  t.same(await rows(), []);
  t.equal(
    store.live.length,
    1,
    'the acknowledgement stays: the gateway may return and cache records before it is enrolled',
  );
});

onEachDatabase(
  'only the projecting process updates the roster, and only for a store that it has compared',
  async (t, url) => {
    const { projection, rosterOf, rows, store } = await rosterFixture(t, url);
    const [one, other] = [projection('one'), projection('other')];
    await one.run();
    await other.run();
    store.live = [gateway('a')];
    await rosterOf(other)();
    t.same(await rows(), [], 'a process without the lease changes nothing');
    store.epoch += 1;
    const updateRoster = rosterOf(one);
    await updateRoster();
    t.same(await rows(), [], 'after a reconnect the store is compared first');
    await updateRoster();
    t.same(await rows(), [{ instance_id: 'a' }]);
  },
);

interface Disaster {
  readonly title: string;
  readonly happens: (fixture: Awaited<ReturnType<typeof rosterFixture>>) => Promise<void> | void;
  /**
   * For how many milliseconds no change counts as in force: in the process that saw the disaster, and in one that
   * starts after it.
   */
  readonly waits: readonly [same: number, started: number];
}

const disasters: readonly Disaster[] = [
  { title: 'nothing happens', happens: () => undefined, waits: [0, 0] },
  {
    title: 'Redis is emptied',
    happens: ({ store }) => {
      empty(store);
    },
    waits: [0, 31_000],
  },
  {
    title: 'Redis restarts with all its data',
    happens: ({ store }) => {
      store.server = 'run-2';
    },
    waits: [0, 31_000],
  },
  {
    title: 'a replica is promoted to master',
    happens: ({ store }) => {
      [store.server, store.canFailOver] = ['run-2', true];
    },
    waits: [2_000, 31_000],
  },
  {
    title: 'Redis is restored from an old snapshot',
    happens: ({ store }) => {
      [store.server, store.revision, store.change] = ['run-2', 1, 'x'];
    },
    waits: [0, 31_000],
  },
  {
    title: 'Redis is restored from a snapshot of an earlier registry release',
    happens: ({ store }) => {
      store.meta = { version: 1, generation: store.meta?.generation ?? '', projectedAt: '2026-01-01T00:00:00.000Z' };
    },
    waits: [31_000, 31_000],
  },
  {
    title: 'the database is restored',
    happens: async ({ database }) => {
      await database.updateTable('revision').set({ value: 1, published_revision: 1 }).execute();
    },
    waits: [31_000, 31_000],
  },
  {
    title: 'the database is restored, and reaches the same revision again',
    happens: async ({ database }) => {
      await database.updateTable('revision').set({ published_change: 'another' }).execute();
    },
    waits: [31_000, 31_000],
  },
];

for (const { title, happens, waits } of disasters) {
  onEachDatabase(`when ${title}, no change is in force before every gateway is known`, async (t, url) => {
    for (const [index, wait] of waits.entries()) {
      const fixture = await rosterFixture(t, index === 0 ? url : `sqlite:${t.testdir()}/second.db`);
      const { context, known, projection, store, time } = fixture;
      const first = projection('first');
      await first.run();
      const { id } = await createMerchant(context, registryAuthor, { name: 'x' });
      const { keyId } = await createKey(context, registryAuthor, id, { environment: 'live' });
      await revokeKey(context, registryAuthor, keyId);
      await first.run();
      t.ok((await known()).isComplete, 'a new database has no unknown gateways');
      const generation = store.meta?.generation;

      await happens(fixture);
      if (index === 1) await first.end();
      const next = index === 0 ? first : projection('second');
      await next.run();
      if (title === 'nothing happens') t.equal(store.meta?.generation, generation, 'the generation is unchanged');
      else t.not(store.meta?.generation, generation, 'a new generation begins');
      t.equal((await known()).isComplete, wait === 0);
      if (wait === 0) continue;
      t.equal((await known()).completeAt, time.now() + wait);
      time.advance(wait - 1);
      await next.run();
      t.notOk((await known()).isComplete, 'gateways may be unknown');

      // After a crash the next process cannot know how long its predecessor has waited.
      await next.end();
      const third = projection('third');
      await third.run();
      time.advance(1);
      await third.run();
      t.notOk((await known()).isComplete, 'another process waits from its own start');
      time.advance(31_000);
      await third.run();
      t.ok((await known()).isComplete);
    }
  });
}

function empty(store: Awaited<ReturnType<typeof rosterFixture>>['store']): void {
  store.records.clear();
  [store.meta, store.revision, store.change] = [null, 0, null];
}

t.test('PostgreSQL: the migration of a running deployment aborts no change', postgresAlone, async (t) => {
  await migrateBeside(t, { migrations, from: '0004-roster', tables: ['revision', 'outbox'] });
  await migrateBeside(t, { migrations, from: '0004-roster', tables: ['events', 'api_keys'] });
  await migrateBeside(t, { migrations, from: '0022-issuers', tables: ['console_sessions', 'administrator_tokens'] });
  await migrateBeside(t, { migrations, from: '0022-issuers', tables: ['console_links', 'administrator_tokens'] });
  await migrateBesideVacuum(t, { migrations, from: '0022-issuers' }, 'administrator_tokens');
  await migrateBeside(t, { migrations, from: '0023-credentials', tables: ['console_sessions', 'console_links'] });
});

t.test("a registry does not take over a store that belongs to another registry's database", async (t) => {
  const { projection, store } = await rosterFixture(t, 'sqlite::memory:');
  const one = projection('one');
  await one.run();
  const foreign = await rosterFixture(t, 'sqlite::memory:');
  if (typeof store.meta?.generation !== 'string') throw new Error('has no meta record');
  foreign.store.meta = { ...store.meta, database: 'another', generation: 'unheard of' };
  await t.rejects(foreign.projection('two').run(), /the records of another database \(another\)/);
  t.match(foreign.store.meta, { database: 'another' }, 'nothing was written');
  foreign.store.meta = null;
  await foreign.projection('two').run();
  t.ok(foreign.store.meta, 'after an operator deletes the meta record it is written anew');
});

t.test('a handled loss stays handled even if the store fails during the refill', async (t) => {
  const { context, known, projection, store } = await rosterFixture(t, 'sqlite::memory:');
  const one = projection('one');
  await one.run();
  await createMerchant(context, registryAuthor, { name: 'x' });
  await one.run();
  for (const call of ['write', 'names', 'complete'] as const) {
    empty(store);
    store.fails = (asked) => (asked === call ? 'before' : null);
    await t.rejects(one.run());
    await t.rejects(one.run());
    store.fails = () => null;
    await one.run();
    t.ok((await known()).isComplete, call);
  }
  empty(store);
  store.fails = (asked) => (asked === 'write' ? 'before' : null);
  await t.rejects(one.run());
  store.fails = () => null;
  await one.end();
  await projection('another').run();
  t.notOk((await known()).isComplete, 'another process cannot know that the loss was handled');
});
