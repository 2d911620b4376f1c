import t from 'tap';
import { createKey, revokeKey } from '../../src/registry/keys/key-changes.js';
import { createMerchant } from '../../src/registry/merchants/repository.js';
import { onEachDatabase } from '../database/each-database.js';
import { Roster } from '../../src/registry/gateways/roster.js';
import { knownGateways } from '../../src/registry/gateways/known-gateways.js';
import type { Projection } from '../../src/registry/projection/projection.js';
import { gateway, type TestGateway } from './memory-records-store.js';
import { projectionFixture } from './projection-fixture.js';

const longestLifetimeMilliseconds = 31_000;

/** A projection with its roster, which does what it is woken for at once. */
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
      await roster.look();
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

onEachDatabase('a gateway has a row, then that is published, and only then it has a grant', async (t, url) => {
  const { change, context, projection, rosterOf, rows, store } = await rosterFixture(t, url);
  const one = projection('one');
  await one.run();
  const look = rosterOf(one);
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
  await roster.look();
  t.same(await rows(), [{ instance_id: 'a' }]);
  t.equal(woken, 1, 'what is to be published is told');
  await roster.look();
  t.equal(store.grants.size, 0, 'there is no grant before the change is published');
  await one.run();
  t.equal(store.revision, 1, 'the enrolment is a change of its own');
  await look();
  const generation = store.meta?.generation;
  const granted = { generation, beat: 7, lifetimeMilliseconds: 31_000, compared: true };
  t.same(store.grants.get('a'), granted, 'with no longer a lifetime');

  const grants = (): number => store.calls.filter((call) => call === 'grant').length;
  const before = grants();
  await look();
  t.equal(grants(), before, 'a beat is echoed once');
  change('a', { beat: 8 });
  await look();
  t.match(store.grants.get('a'), { beat: 8 });
  change('a', { beat: 9, generation: 'of another time' });
  await look();
  t.match(store.grants.get('a'), { beat: 8 }, 'what another generation is acknowledged in is not echoed');
});

onEachDatabase('a row goes when the gateway has left, or was silent for its whole lifetime', async (t, url) => {
  const { change, known, projection, rosterOf, rows, store } = await rosterFixture(t, url);
  const one = projection('one');
  await one.run();
  const look = rosterOf(one);
  store.live = [gateway('leaves'), gateway('vanishes'), gateway('stays')];
  await look();
  await look();
  t.equal(store.grants.size, 3);
  change('leaves', { leaving: true });
  change('vanishes', { silentMilliseconds: 30_999 });
  t.same(
    (await known()).gateways.map(({ instanceId }) => instanceId).toSorted(),
    ['stays', 'vanishes'],
    'nobody waits for one that has decided its last request',
  );
  await look();
  t.same(await rows(), [{ instance_id: 'stays' }, { instance_id: 'vanishes' }]);
  change('vanishes', { silentMilliseconds: 31_000 });
  await look();
  t.same(await rows(), [{ instance_id: 'stays' }]);
  t.same([...store.grants.keys()], ['stays'], 'the grant goes with the row');
  t.same(
    store.live.map(({ instanceId }) => instanceId),
    ['stays'],
  );

  // Redis has lost what it acknowledged: nothing is forgotten before the lifetime is over.
  store.live = [];
  store.silence = 30_000;
  await look();
  t.match(await known(), { gateways: [{ instanceId: 'stays', revision: null, isEnrolled: true }], isComplete: true });
  store.silence = 31_000;
  await look();
  t.same(await rows(), []);
});

onEachDatabase('a gateway of an earlier release is counted, and confirms nothing', async (t, url) => {
  const { change, known, projection, rosterOf, rows, store } = await rosterFixture(t, url);
  const one = projection('one');
  await one.run();
  const look = rosterOf(one);
  store.live = [gateway('old', { generation: null, beat: undefined as unknown as number })];
  await look();
  await look();
  t.equal(store.grants.size, 0, 'it needs no grant');
  t.match(await known(), {
    gateways: [{ instanceId: 'old', revision: null, namesGeneration: false, isEnrolled: true }],
  });
  change('old', { silentMilliseconds: 31_000 });
  await look();
  t.same(await rows(), []);
  t.equal(
    store.live.length,
    1,
    'its acknowledgement stays: it may come back, and hold records before it is in the roster',
  );
});

onEachDatabase(
  'only the process that projects keeps the roster, and only of a store that it has compared',
  async (t, url) => {
    const { projection, rosterOf, rows, store } = await rosterFixture(t, url);
    const [one, other] = [projection('one'), projection('other')];
    await one.run();
    await other.run();
    store.live = [gateway('a')];
    await rosterOf(other)();
    t.same(await rows(), [], 'another process leaves it alone');
    store.epoch += 1;
    const look = rosterOf(one);
    await look();
    t.same(await rows(), [], 'a new connection is compared first');
    await look();
    t.same(await rows(), [{ instance_id: 'a' }]);
  },
);

interface Disaster {
  readonly title: string;
  readonly happens: (fixture: Awaited<ReturnType<typeof rosterFixture>>) => Promise<void> | void;
  /** How long nothing is in force, for the process that saw it happen and for one that starts. */
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
    title: 'Redis starts anew with everything',
    happens: ({ store }) => {
      store.server = 'run-2';
    },
    waits: [0, 31_000],
  },
  {
    title: 'a replica takes the place of its master',
    happens: ({ store }) => {
      [store.server, store.canFailOver] = ['run-2', true];
    },
    waits: [2_000, 31_000],
  },
  {
    title: 'Redis goes back to an old snapshot',
    happens: ({ store }) => {
      [store.server, store.revision, store.change] = ['run-2', 1, 'x'];
    },
    waits: [0, 31_000],
  },
  {
    title: 'Redis goes back to a snapshot of an earlier release of the registry',
    happens: ({ store }) => {
      store.meta = { version: 1, generation: store.meta?.generation ?? '', projectedAt: '2026-01-01T00:00:00.000Z' };
    },
    waits: [31_000, 31_000],
  },
  {
    title: 'the database goes back',
    happens: async ({ database }) => {
      await database.updateTable('revision').set({ value: 1, published_revision: 1 }).execute();
    },
    waits: [31_000, 31_000],
  },
  {
    title: 'the database goes back, and comes to the same number again',
    happens: async ({ database }) => {
      await database.updateTable('revision').set({ published_change: 'another' }).execute();
    },
    waits: [31_000, 31_000],
  },
];

for (const { title, happens, waits } of disasters) {
  onEachDatabase(`when ${title}, nothing is in force before every gateway is known`, async (t, url) => {
    for (const [index, wait] of waits.entries()) {
      const fixture = await rosterFixture(t, index === 0 ? url : `sqlite:${t.testdir()}/second.db`);
      const { context, known, projection, store, time } = fixture;
      const first = projection('first');
      await first.run();
      const { id } = await createMerchant(context, 'test', { name: 'x' });
      const { keyId } = await createKey(context, 'test', id, { environment: 'live' });
      await revokeKey(context, 'test', keyId);
      await first.run();
      t.ok((await known()).isComplete, 'a new database has forgotten nobody');
      const generation = store.meta?.generation;

      await happens(fixture);
      if (index === 1) await first.end();
      const next = index === 0 ? first : projection('second');
      await next.run();
      if (title === 'nothing happens') t.equal(store.meta?.generation, generation, 'the generation goes on');
      else t.not(store.meta?.generation, generation, 'a new generation begins');
      t.equal((await known()).isComplete, wait === 0);
      if (wait === 0) continue;
      t.equal((await known()).completeAt, time.now() + wait);
      time.advance(wait - 1);
      await next.run();
      t.notOk((await known()).isComplete, 'it waits');

      // Whoever goes on after a crash cannot know how long the other one has waited.
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

t.test('the database of another registry does not take over a store', async (t) => {
  const { projection, store } = await rosterFixture(t, 'sqlite::memory:');
  const one = projection('one');
  await one.run();
  const strange = await rosterFixture(t, 'sqlite::memory:');
  if (typeof store.meta?.generation !== 'string') throw new Error('not seeded');
  strange.store.meta = { ...store.meta, database: 'another', generation: 'unheard of' };
  await t.rejects(strange.projection('two').run(), /that of another database \(another\)/);
  t.match(strange.store.meta, { database: 'another' }, 'nothing was written');
  strange.store.meta = null;
  await strange.projection('two').run();
  t.ok(strange.store.meta, 'an operator who deletes the meta record has it replaced');
});

t.test('a loss that was accounted for stays so where the store fails while everything is written anew', async (t) => {
  const { context, known, projection, store } = await rosterFixture(t, 'sqlite::memory:');
  const one = projection('one');
  await one.run();
  await createMerchant(context, 'test', { name: 'x' });
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
  t.notOk((await known()).isComplete, 'another process cannot know that');
});
