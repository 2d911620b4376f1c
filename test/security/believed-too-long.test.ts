import t from 'tap';
import type { Test } from 'tap';
import { Heartbeat } from '../../src/adapters/redis/gateway/heartbeat.js';
import { Outage } from '../../src/adapters/redis/outage.js';
import { RecordNames } from '../../src/adapters/redis/record-names.js';
import { seededRecords } from '../adapters/key-store-contract.js';

// A gateway that believes what it holds for longer than it was known to be true lets a revoked key in; one that acknowledges
// a revision before it has heard of it makes the registry say that the revocation is done.

const start = 1_700_000_000_000;
const maxStaleMilliseconds = 30_000;

/** A heartbeat over a store that does what it is told, at moments that are given. */
function setUp(t: Test) {
  const time = { wall: start, monotonic: 5_000 };
  t.intercept(performance, 'now', { value: () => time.monotonic });
  const told: string[] = [];
  const store = {
    hearing: true,
    epoch: 1,
    meta: JSON.stringify(seededRecords['mg:meta']),
    revision: '7',
    onRead: (): Promise<void> => Promise.resolve(),
    onCatchUp: (): Promise<void> => Promise.resolve(),
    lifetime: 0,
  };
  const heartbeat = new Heartbeat({
    link: {
      get hearing() {
        return store.hearing;
      },
      get epoch() {
        return store.epoch;
      },
      policies: [],
      partLost: null,
      readState: async () => {
        await store.onRead();
        return [store.meta, store.revision];
      },
      catchUp: async () => {
        await store.onCatchUp();
        told.push('caught up');
      },
      servers: null,
      acknowledge: ({ name, text, lifetimeMilliseconds }) => {
        told.push(`${name} has ${(JSON.parse(text) as { revision: number }).revision}`);
        store.lifetime = lifetimeMilliseconds;
        return Promise.resolve(null);
      },
      write: () => Promise.resolve(),
      witness: () => 'none',
      confirm: () => Promise.resolve(true),
      remove: (name) => Promise.resolve(void told.push(`${name} has gone`)),
      read: () => Promise.resolve(null),
      close: () => undefined,
    },
    outage: new Outage({ onLost: () => undefined, onFound: () => undefined }),
    names: new RecordNames('mg:'),
    identity: { instanceId: 'g', environment: 'live', host: 'test', startedAt: '2026-01-01T00:00:00.000Z' },
    clock: { now: () => time.wall },
    maxStaleMilliseconds,
    onCaughtUp: (hasMissed) => told.push(hasMissed ? 'dropped' : 'closed'),
    ...{ onForget: () => undefined, onNotice: () => undefined, holds: () => true, inactive: () => [] },
  });
  t.teardown(() => heartbeat.close());
  const pass = (milliseconds: number): void => {
    time.wall += milliseconds;
    time.monotonic += milliseconds;
  };
  return { heartbeat, store, told, time, pass };
}

t.test(
  'a revision is acknowledged when everything has been heard that came before it, and not where it was not',
  async (t) => {
    const { heartbeat, store, told } = setUp(t);
    await heartbeat.beat();
    t.same(told, ['caught up', 'dropped', 'mg:gateway:g has 7']);
    told.length = 0;
    store.revision = '8';
    store.onCatchUp = () => Promise.reject(new Error('the line is dead'));
    await heartbeat.beat();
    t.same(told, []);
  },
);

t.test('an acknowledgement lasts for longer than what is held may be served', async (t) => {
  const { heartbeat, store } = setUp(t);
  await heartbeat.beat();
  t.ok(store.lifetime > maxStaleMilliseconds);
});

t.test('what is held counts from before the store was asked, by whichever clock has gone further', async (t) => {
  const { heartbeat, store, time, pass } = setUp(t);
  t.equal(heartbeat.sinceKnownTrue, Infinity);
  store.onRead = () => {
    pass(400);
    return Promise.resolve();
  };
  await heartbeat.beat();
  t.equal(heartbeat.sinceKnownTrue, 400);
  t.ok(heartbeat.fresh);
  pass(1_100);
  t.ok(heartbeat.fresh);
  pass(1);
  t.notOk(heartbeat.fresh, 'a process that was stopped');

  store.onRead = () => Promise.resolve();
  await heartbeat.beat();
  t.ok(heartbeat.fresh);
  time.wall += 60_000;
  t.equal(heartbeat.sinceKnownTrue, 60_000, 'a machine that slept, whose other clock did not go on');
  t.notOk(heartbeat.fresh);
  time.wall -= 60_000;
  time.monotonic += 60_000;
  t.equal(heartbeat.sinceKnownTrue, 60_000, 'a clock that was set back meanwhile');
  t.notOk(heartbeat.fresh);
  time.wall -= 1;
  t.equal(heartbeat.sinceKnownTrue, Infinity, 'and one that was set back to before');
  t.notOk(heartbeat.fresh);
});

t.test('what is held from before listening began anew is dropped before a revision is acknowledged', async (t) => {
  const { heartbeat, store, told } = setUp(t);
  await heartbeat.beat();
  store.epoch += 1;
  t.notOk(heartbeat.fresh, 'it is not believed until then');
  told.length = 0;
  store.onCatchUp = () => Promise.reject(new Error('away'));
  await heartbeat.beat();
  t.same(told, [], 'a beat that fails leaves it to be served as stale');
  store.onCatchUp = () => Promise.resolve();
  await heartbeat.beat();
  t.same(told, ['caught up', 'dropped', 'mg:gateway:g has 7']);
  t.ok(heartbeat.fresh);
  told.length = 0;
  store.onCatchUp = () => Promise.resolve(void (store.epoch += 1));
  await heartbeat.beat();
  t.same(
    told,
    ['caught up'],
    'nothing is acknowledged where it began anew during the beat: another server may have been asked',
  );
  store.onCatchUp = () => Promise.resolve();
  await heartbeat.beat();
  t.same(told.slice(1), ['caught up', 'dropped', 'mg:gateway:g has 7']);
});

t.test('what was not heard of from the beginning of a beat to its end is not known to be true after it', async (t) => {
  const { heartbeat, store } = setUp(t);
  store.onCatchUp = () => Promise.resolve(void (store.epoch += 1));
  await heartbeat.beat();
  t.notOk(heartbeat.fresh, 'listening began anew meanwhile');
  store.onCatchUp = () => Promise.resolve();
  await heartbeat.beat();
  t.ok(heartbeat.fresh);
  store.hearing = false;
  t.notOk(heartbeat.fresh, 'nothing can be heard now');
  store.hearing = true;
  heartbeat.doubt();
  t.notOk(heartbeat.fresh, 'the store may be another one');
  await heartbeat.beat();
  t.ok(heartbeat.fresh);
});

t.test('a store that does not answer decides from what is held for as long as is allowed, and no longer', async (t) => {
  const { heartbeat, store, pass } = setUp(t);
  await heartbeat.beat();
  store.onRead = () => Promise.reject(new Error('away'));
  await heartbeat.beat();
  pass(maxStaleMilliseconds);
  t.equal(heartbeat.reason, null);
  pass(1);
  t.equal(heartbeat.reason, 'Redis does not answer');
});

t.test('a gateway that has ended takes its acknowledgement back, and gives none any more', async (t) => {
  const { heartbeat, told } = setUp(t);
  await heartbeat.beat();
  told.length = 0;
  const last = heartbeat.beat();
  await heartbeat.close();
  await Promise.all([last, heartbeat.beat()]);
  t.same(
    told,
    ['caught up', 'closed', 'mg:gateway:g has 7', 'mg:gateway:g has gone'],
    'also where a beat was under way',
  );
});
