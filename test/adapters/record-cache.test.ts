import t from 'tap';
import { type CacheLimits, type Freshness, RecordCache } from '../../src/adapters/cache/record-cache.js';
import type { Eventual } from '../../src/gateway/eventual.js';
import { KeyStoreUnavailable } from '../../src/gateway/key-store.js';
import type { RecordRead } from '../../src/gateway/record-key-store.js';

interface Value {
  readonly version: number;
}

type ReadResult = Value | KeyStoreUnavailable | null;

const limits: CacheLimits = {
  maxEntries: 3,
  maxAgeMilliseconds: 60_000,
  unknownMaxEntries: 2,
  unknownMaxAgeMilliseconds: 60_000,
  maxStaleMilliseconds: 1000,
};

/** Resolves with the result of a read, or with its error. */
function failureOr(asked: Eventual<RecordRead<Value>>): Promise<unknown> {
  return Promise.resolve(asked).catch((error: unknown) => error);
}

/** A cache over a store. The test decides when the store replies, and what. */
function setUp(over: Partial<CacheLimits> = {}) {
  const heartbeat = { fresh: true, sinceKnownTrue: 0, beats: 0, onBeat: (): void | Promise<void> => undefined };
  const clock = { now: 1_000_000 };
  const asked: { name: string; resolve: (value: ReadResult) => void; fail: (error: Error) => void }[] = [];
  const port: Freshness = {
    standing: {
      get fresh() {
        return heartbeat.fresh;
      },
      get sinceKnownTrue() {
        return heartbeat.sinceKnownTrue;
      },
      staleMilliseconds: limits.maxStaleMilliseconds,
    },
    catchUp: async () => {
      heartbeat.beats += 1;
      await heartbeat.onBeat();
    },
  };
  const read = (name: string) => new Promise<ReadResult>((resolve, fail) => asked.push({ name, resolve, fail }));
  const cache = new RecordCache<Value>({ ...limits, ...over }, port, read, () => clock.now);
  /** Runs pending microtasks, but no timers: on a slow machine, the timer that ends the wait for a store could fire. */
  const settle = async () => {
    for (let turn = 0; turn < 100; turn += 1) await Promise.resolve();
  };
  const next = async () => {
    await settle();
    const question = asked.shift();
    if (question === undefined) throw new Error('the store was not asked');
    return question;
  };
  const put = async (name: string, value: ReadResult) => {
    const got = failureOr(cache.get(name));
    (await next()).resolve(value);
    return got;
  };
  return { cache, heartbeat, clock, asked, next, put, settle };
}

t.test('a record read before a change whose reply arrives after the notice is not cached', async (t) => {
  const { cache, next } = setUp();
  const early = cache.get('a');
  const question = await next();
  cache.drop(['a']);
  question.resolve({ version: 1 });
  t.match(
    await early,
    { record: { version: 1 }, source: 'store' },
    'a request made before the change may get the old record',
  );
  const later = cache.get('a');
  (await next()).resolve({ version: 2 });
  t.match(await later, { record: { version: 2 }, source: 'store' });
  t.match(await cache.get('a'), { record: { version: 2 }, source: 'cache' });
});

t.test('a request made after a change does not share a read started before it', async (t) => {
  const { cache, next } = setUp();
  const early = cache.get('a');
  const before = await next();
  cache.drop(['a']);
  const late = cache.get('a');
  const after = await next();
  before.resolve({ version: 1 });
  after.resolve({ version: 2 });
  t.match([await early, await late], [{ record: { version: 1 } }, { record: { version: 2 } }]);
  t.match(await cache.get('a'), { record: { version: 2 }, source: 'cache' }, 'the older reply is not cached');
});

t.test('an old reply that arrives after the newer one does not replace it', async (t) => {
  const { cache, next } = setUp();
  const early = cache.get('a');
  const before = await next();
  cache.dropAll();
  const late = cache.get('a');
  (await next()).resolve({ version: 2 });
  await late;
  before.resolve({ version: 1 });
  await early;
  t.match(await cache.get('a'), { record: { version: 2 }, source: 'cache' });
});

t.test('a reply is used but not cached if invalidation notices may have been lost meanwhile', async (t) => {
  const { cache, heartbeat, next, put } = setUp();
  const asking = cache.get('a');
  const question = await next();
  cache.becomeStale();
  question.resolve({ version: 1 });
  t.match(await asking, { record: { version: 1 } });
  t.match(cache.stats, { known: { entries: 0 }, unknown: { entries: 0 } });
  heartbeat.fresh = false;
  t.match(await put('b', { version: 1 }), { source: 'store' }, "the store's reply is used");
  t.match(cache.stats, { known: { entries: 0 }, unknown: { entries: 0 } }, 'but without tracking it is not cached');
});

t.test('concurrent requests for a record share one read', async (t) => {
  const { cache, asked, settle } = setUp();
  const all = Array.from({ length: 1000 }, async () => cache.get('a'));
  await settle();
  t.equal(asked.length, 1);
  asked[0]?.resolve({ version: 1 });
  t.ok((await Promise.all(all)).every(({ record }) => record?.version === 1));
});

t.test('all waiting requests share a failure, which is not cached', async (t) => {
  const { cache, next, put } = setUp();
  const waiting = [cache.get('a'), cache.get('a')].map(failureOr);
  (await next()).fail(new KeyStoreUnavailable('away'));
  t.ok((await Promise.all(waiting)).every((error) => error instanceof KeyStoreUnavailable));
  t.match(await put('a', { version: 1 }), { record: { version: 1 } });
});

t.test('a flood of unknown keys evicts no known record, and is bounded', async (t) => {
  const { cache, put } = setUp();
  await put('known', { version: 1 });
  for (let count = 0; count < 100; count += 1) await put(`unknown-${count}`, null);
  t.match(cache.stats, { known: { entries: 1, evictions: 0 }, unknown: { entries: 2, evictions: 98 } });
  t.match(await cache.get('known'), { source: 'cache' });
  t.match(await cache.get('unknown-99'), { record: null, source: 'cache' });
  for (let count = 0; count < 100; count += 1) await put(`known-${count}`, { version: count });
  t.match(cache.stats, { known: { entries: 3, evictions: 98 }, unknown: { entries: 2, evictions: 98 } });
  cache.dropAll();
  const empty = { known: { entries: 0, evictions: 98 }, unknown: { entries: 0, evictions: 98 } };
  t.same(cache.stats, empty, 'an invalidation is not an eviction');
});

t.test(
  'a record is read again after its maximum age, and an unknown one after the maximum age for these',
  async (t) => {
    const { cache, clock, put } = setUp({ maxAgeMilliseconds: 60_000, unknownMaxAgeMilliseconds: 5_000 });
    await put('a', { version: 1 });
    await put('nobody', null);
    clock.now += 5_000;
    t.match(await cache.get('nobody'), { record: null, source: 'cache' });
    clock.now += 1;
    t.match(await put('nobody', { version: 1 }), { record: { version: 1 }, source: 'store' });
    clock.now += 54_999;
    t.match(await cache.get('a'), { record: { version: 1 }, source: 'cache' });
    clock.now += 1;
    t.match(await put('a', { version: 2 }), { record: { version: 2 }, source: 'store' });
  },
);

t.test('an unknown key is read again as soon as its record changes: a new key is accepted at once', async (t) => {
  const { cache, put } = setUp();
  for (const isEverything of [false, true]) {
    await put('a', null);
    t.match(await cache.get('a'), { record: null, source: 'cache' });
    if (isEverything) cache.dropAll();
    else cache.drop(['a']);
    t.match(await put('a', { version: 1 }), { record: { version: 1 }, source: 'store' });
    cache.drop(['a']);
  }
});

t.test('with a negative maximum age nothing is cached: each request reads', async (t) => {
  const { heartbeat, put } = setUp({ maxAgeMilliseconds: -1, unknownMaxAgeMilliseconds: -1 });
  heartbeat.sinceKnownTrue = 1001; // otherwise a stale record might be served while this test is delayed
  for (let version = 1; version < 4; version += 1) {
    t.match(await put('a', { version }), { record: { version }, source: 'store' });
    t.match(await put('b', null), { record: null, source: 'store' });
  }
});

t.test(
  'a cached record is removed when the store reports it missing, and a cached absence when it exists',
  async (t) => {
    const { cache, heartbeat, put } = setUp({ maxAgeMilliseconds: -1 });
    heartbeat.sinceKnownTrue = 1001; // otherwise a stale record might be served while this test is delayed
    await put('a', { version: 1 });
    t.match(await put('a', null), { record: null, source: 'store' });
    t.same(cache.stats, { known: { entries: 0, evictions: 0 }, unknown: { entries: 1, evictions: 0 } });
  },
);

t.test('during an outage cached records are served up to the stale limit, and nothing else', async (t) => {
  const { cache, clock, heartbeat, next, put } = setUp();
  await put('a', { version: 1 });
  await put('nobody', null);
  cache.becomeStale();
  heartbeat.fresh = false;
  const askWhileAway = async (name: string, since: number) => {
    heartbeat.sinceKnownTrue = since;
    clock.now += 1000;
    const got = failureOr(cache.get(name));
    (await next()).fail(new KeyStoreUnavailable('away'));
    return got;
  };
  t.match(await askWhileAway('a', 1000), { record: { version: 1 }, source: 'stale', ageMilliseconds: 1000 });
  t.type(await askWhileAway('a', 1001), KeyStoreUnavailable, 'a millisecond too old');
  t.type(await askWhileAway('nobody', 10), KeyStoreUnavailable, 'a cached "unknown" is never served stale');
  t.type(await askWhileAway('b', 10), KeyStoreUnavailable);
  [heartbeat.sinceKnownTrue, clock.now] = [0, clock.now + 1000];
  t.match(
    await put('a', { version: 2 }),
    { record: { version: 2 }, source: 'store' },
    'a store that replies has priority',
  );
  heartbeat.sinceKnownTrue = 1001;
  const defect = failureOr(cache.get('a'));
  (await next()).fail(new TypeError('a defect'));
  t.type(await defect, TypeError, 'a defect is not an outage');
});

t.test('a suspended process trusts no cached record before it has processed its notices', async (t) => {
  const { cache, heartbeat, put } = setUp();
  await put('a', { version: 1 });
  heartbeat.fresh = false; // the process was suspended for longer than it may trust its cache
  heartbeat.onBeat = () => {
    cache.drop(['a']); // the notice that arrived during the suspension
    heartbeat.fresh = true;
  };
  t.match(await put('a', { version: 2 }), { record: { version: 2 }, source: 'store' });
  t.equal(heartbeat.beats, 1);
  heartbeat.fresh = false;
  heartbeat.onBeat = () => {
    heartbeat.fresh = true;
  };
  t.match(
    await cache.get('a'),
    { record: { version: 2 }, source: 'cache' },
    'a record without a notice is still current',
  );
});

t.test('a malformed record is cached as malformed, and read again when it changes', async (t) => {
  const { cache, asked, put } = setUp();
  const damaged = new KeyStoreUnavailable('damaged');
  t.equal(await put('a', damaged), damaged);
  await t.rejects(async () => cache.get('a'), damaged);
  t.equal(asked.length, 0, 'it is not read for each request');
  cache.drop(['a']);
  t.match(await put('a', { version: 2 }), { record: { version: 2 } });
});

t.test('a request for a cached record does not wait for a silent store', async (t) => {
  const { cache, clock, heartbeat, asked, put } = setUp();
  await put('a', { version: 1 });
  heartbeat.fresh = false;
  heartbeat.onBeat = () => new Promise(() => undefined);
  t.match(await cache.get('a'), { record: { version: 1 }, source: 'stale' }, 'not for a heartbeat');
  heartbeat.onBeat = () => undefined;
  [asked.length, clock.now] = [0, clock.now + 250];
  t.match(await cache.get('a'), { record: { version: 1 }, source: 'stale' }, 'nor for the record');
  t.equal(asked.length, 1, 'which is read all the same');
});

t.test('of many requests for cached records only one waits for a silent Redis', async (t) => {
  const { asked, cache, clock, heartbeat, put } = setUp();
  await put('a', { version: 1 });
  await put('b', { version: 1 });
  heartbeat.fresh = false;
  heartbeat.onBeat = () => new Promise(() => undefined);
  t.match(await cache.get('a'), { record: { version: 1 }, source: 'stale' });
  t.equal(heartbeat.beats, 1);
  for (const name of ['a', 'b', 'a']) t.match(await cache.get(name), { record: { version: 1 }, source: 'stale' });
  t.equal(heartbeat.beats, 1, 'the others are served at once');
  t.equal(asked.length, 0);
  clock.now += 250;
  t.match(await cache.get('a'), { source: 'stale' });
  t.equal(heartbeat.beats, 2, 'a later one tries again');
  heartbeat.sinceKnownTrue = 1001;
  const tooOld = cache.get('a');
  t.equal(heartbeat.beats, 3, 'a record beyond the stale limit is not served');
  void Promise.resolve(tooOld).catch(() => undefined);
});
