import t from 'tap';
import { GatewayDirectory } from '../../src/adapters/redis/registry/gateway-directory.js';

const gateway = { revision: 3, environment: 'live', host: 'h', startedAt: '2026-01-01T00:00:00.000Z' } as const;

/** A gateway directory that reads the acknowledgements stored by the test, with clocks that only the test advances. */
function start() {
  const stored = new Map<string, string>();
  const clocks = { monotonic: 0, wall: 1_000_000 };
  const source = {
    ...{ prefix: 'mg:gateway:', connected: true, epoch: 1 },
    catchUp: () => Promise.resolve(),
    names: async function* () {
      await Promise.resolve();
      yield* [...stored.keys()];
    },
    read: (names: readonly string[]) =>
      Promise.resolve({ generation: 'g', isSealed: false, texts: names.map((name) => stored.get(name) ?? null) }),
  };
  const directory = new GatewayDirectory(
    source,
    () => clocks.monotonic,
    () => clocks.wall,
  );
  const put = (instanceId: string, more: object = {}): void => {
    stored.set(`mg:gateway:${instanceId}`, JSON.stringify({ instanceId, ...gateway, ...more }));
  };
  const hear = (...ids: string[]): void => {
    directory.received(ids.map((id) => `mg:gateway:${id}`));
  };
  const silence = async (...roster: string[]): Promise<Record<string, number>> => {
    const { gateways } = await directory.list(roster);
    return Object.fromEntries(gateways.map(({ instanceId, silentMilliseconds }) => [instanceId, silentMilliseconds]));
  };
  return { clocks, directory, hear, put, silence, source, stored };
}

t.test('an acknowledgement written while the read reports it missing is found on the next read', async (t) => {
  const { directory, hear, put, source, stored } = start();
  put('g');
  const { read } = source;
  source.read = (names) => {
    stored.clear();
    const result = read(names);
    // The notice of this acknowledgement arrives on another connection than the reply, and may overtake the reply.
    put('g');
    hear('g');
    source.read = read;
    return result;
  };
  t.match((await directory.list([])).gateways, [{ instanceId: 'g', acknowledgement: null }]);
  t.match((await directory.list([])).gateways, [{ instanceId: 'g', acknowledgement: { revision: 3 } }]);
});

t.test('silence is counted from the last notice, and restarts when a notice may have been missed', async (t) => {
  const { clocks, directory, hear, put, silence } = start();
  put('a');
  put('b');
  clocks.monotonic = 500;
  t.same(await silence(), { a: 0, b: 0 }, 'silence before the first listing is unknown');
  clocks.monotonic = 2_000;
  hear('a');
  clocks.monotonic = 2_500;
  t.same(await silence(), { a: 500, b: 2_000 });
  directory.missed();
  t.same(await silence(), { a: 0, b: 0 }, 'a notice may have arrived in the meantime');
  clocks.monotonic = 9_000;
  hear('b');
  t.same(await silence(), { a: 6_500, b: 0 });
});

t.test('notices sent before the listing end a silence, and the time of the listing does not count', async (t) => {
  const { clocks, hear, put, silence, source } = start();
  put('a');
  await silence();
  clocks.monotonic = 40_000;
  source.catchUp = () => {
    clocks.monotonic += 5_000;
    hear('a');
    return Promise.resolve();
  };
  t.same(await silence(), { a: 0 });
  source.catchUp = () => {
    clocks.monotonic += 5_000;
    return Promise.resolve();
  };
  t.same(await silence(), { a: 0 }, 'notices count until the listing began, and not later');
});

// Regression: the directory forgot a gateway once its acknowledgement was gone, and then counted it as silent since the
// registry's start. So the next listing removed it from the roster (the registry's own list of gateways), although its
// cache was still valid.
t.test('a lost acknowledgement of a gateway in the roster is a sign of life, once', async (t) => {
  const { clocks, hear, put, silence, source, stored } = start();
  put('a');
  await silence('a');
  clocks.monotonic = 3_600_000;
  stored.clear();
  hear('a');
  for (const after of [0, 250, 10_000]) {
    clocks.monotonic = 3_600_000 + after;
    t.same(await silence('a'), { a: after });
  }
  const read = source.read.bind(source);
  source.read = async (names) => {
    source.read = read;
    await silence();
    return read(names);
  };
  t.same(await silence('a'), { a: 0 }, 'a concurrent listing without the roster does not forget it');
  t.same(await silence('a'), { a: 0 });
  clocks.monotonic += 1_000;
  t.same(await silence('a'), { a: 1_000 }, 'its silence is counted from zero');
  t.same(await silence(), { a: 1_000 }, 'it is no longer in the roster');
  t.same(await silence(), {}, 'it is forgotten on the next listing');
});

t.test('a roster gateway without any notice is silent since it was first listed', async (t) => {
  const { clocks, directory, silence } = start();
  clocks.monotonic = 3_600_000;
  t.same(await silence('a'), { a: 0 }, 'not since the process started');
  clocks.monotonic += 1_000;
  t.same(await silence('a'), { a: 1_000 });
  directory.missed();
  t.same(await silence('a'), { a: 0 });
  t.match((await directory.list(['a'])).gateways, [{ instanceId: 'a', acknowledgement: null }]);
});

t.test('a directory that is not tracking, or stopped tracking during a listing, reports that', async (t) => {
  const { directory, put, source } = start();
  put('a');
  const isFresh = async (): Promise<boolean> => (await directory.list([])).isFresh;
  t.equal(await isFresh(), true);
  source.connected = false;
  t.equal(await isFresh(), false);
  source.connected = true;
  const { read } = source;
  source.read = (names) => {
    source.epoch += 1;
    return read(names);
  };
  t.equal(await isFresh(), false, 'the connections were reopened');
  source.read = (names) => {
    source.connected = false;
    return read(names);
  };
  t.equal(await isFresh(), false);
  source.connected = true;
  source.catchUp = () => Promise.reject(new Error('no answer'));
  await t.rejects(directory.list([]), /no answer/);
});

t.test('acknowledgements written while not tracking are found by a new scan', async (t) => {
  const { directory, put, silence, source } = start();
  t.same(await silence(), {});
  put('unheard');
  t.same(await silence(), {}, 'while tracking, no scan over a million records is made');
  directory.missed();
  source.connected = false;
  t.same(Object.keys(await silence()), ['unheard']);
  put('later');
  t.same(Object.keys(await silence()), ['unheard', 'later'], 'still not tracking');
  source.connected = true;
  const names = source.names.bind(source);
  source.names = () => {
    source.epoch += 1;
    return names();
  };
  await silence();
  source.names = names;
  put('between');
  t.same(Object.keys(await silence()), ['unheard', 'later', 'between'], 'some notices may have been lost');
  put('nobody heard');
  t.equal(Object.keys(await silence()).length, 3);
});

t.test('an acknowledgement with another instance id is ignored', async (t) => {
  const { directory, put, stored } = start();
  put('a');
  stored.set('mg:gateway:b', JSON.stringify({ instanceId: 'a', ...gateway, revision: 9 }));
  t.match((await directory.list([])).gateways, [
    { instanceId: 'a', acknowledgement: { revision: 3 } },
    { instanceId: 'b', acknowledgement: null },
  ]);
});

t.test('the clock skew is that of the last notice', async (t) => {
  const { clocks, directory, hear, put } = start();
  const skews = async () => (await directory.list([])).gateways.map((one) => one.clockSkewMilliseconds);
  put('a', { now: clocks.wall + 7_000 });
  t.same(await skews(), [null], 'the age of an acknowledgement found by a scan is unknown');
  hear('a');
  clocks.wall += 60_000;
  t.same(await skews(), [7_000]);
  put('a', { now: clocks.wall - 3_000 });
  hear('a');
  directory.missed();
  t.same(await skews(), [-3_000], 'a scan is not a notice');
  put('a');
  hear('a');
  t.same(await skews(), [null], 'an earlier release does not report its time');
});
