import t from 'tap';
import { GatewayDirectory } from '../../src/adapters/redis/registry/gateway-directory.js';

const gateway = { revision: 3, environment: 'live', host: 'h', startedAt: '2026-01-01T00:00:00.000Z' } as const;

/** A directory of acknowledgements that the test keeps, on clocks that stand still. */
function start() {
  const stored = new Map<string, string>();
  const clocks = { monotonic: 0, wall: 1_000_000 };
  const source = {
    ...{ prefix: 'mg:gateway:', hearing: true, epoch: 1 },
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
    directory.heard(ids.map((id) => `mg:gateway:${id}`));
  };
  const silence = async (...roster: string[]): Promise<Record<string, number>> => {
    const { gateways } = await directory.list(roster);
    return Object.fromEntries(gateways.map(({ instanceId, silentMilliseconds }) => [instanceId, silentMilliseconds]));
  };
  return { clocks, directory, hear, put, silence, source, stored };
}

t.test('one that acknowledges while it is found to be gone is not overlooked the next time', async (t) => {
  const { directory, hear, put, source, stored } = start();
  put('g');
  const { read } = source;
  source.read = (names) => {
    stored.clear();
    const answer = read(names);
    // Its notice comes over another connection than the answer, and may be there first.
    put('g');
    hear('g');
    source.read = read;
    return answer;
  };
  t.match((await directory.list([])).gateways, [{ instanceId: 'g', acknowledgement: null }]);
  t.match((await directory.list([])).gateways, [{ instanceId: 'g', acknowledgement: { revision: 3 } }]);
});

t.test('silence is counted from the last notice, and anew where one may have been missed', async (t) => {
  const { clocks, directory, hear, put, silence } = start();
  put('a');
  put('b');
  clocks.monotonic = 500;
  t.same(await silence(), { a: 0, b: 0 }, 'nothing is known of their silence before they were found');
  clocks.monotonic = 2_000;
  hear('a');
  clocks.monotonic = 2_500;
  t.same(await silence(), { a: 500, b: 2_000 });
  directory.missed();
  t.same(await silence(), { a: 0, b: 0 }, 'they may have been heard of meanwhile');
  clocks.monotonic = 9_000;
  hear('b');
  t.same(await silence(), { a: 6_500, b: 0 });
});

t.test('what was sent before the look ends a silence, and the look itself makes none longer', async (t) => {
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
  t.same(await silence(), { a: 0 }, 'a gateway could be heard of until the look began, and not later');
});

// It was forgotten as soon as its acknowledgement was gone, and then counted as silent since the registry had started: the
// next look took it out of the roster although it could use what it held.
t.test('the loss of an acknowledgement of one in the roster is a sign of life, and no more', async (t) => {
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
  t.same(
    await silence('a'),
    { a: 0 },
    'nor is it forgotten by a look that does not know the roster, and overtakes another',
  );
  t.same(await silence('a'), { a: 0 });
  clocks.monotonic += 1_000;
  t.same(await silence('a'), { a: 1_000 }, 'but counted anew');
  t.same(await silence(), { a: 1_000 }, 'it is not in the roster any more');
  t.same(await silence(), {}, 'and then forgotten');
});

t.test('one of the roster that was never heard of is silent since it was first asked for', async (t) => {
  const { clocks, directory, silence } = start();
  clocks.monotonic = 3_600_000;
  t.same(await silence('a'), { a: 0 }, 'not since the process began');
  clocks.monotonic += 1_000;
  t.same(await silence('a'), { a: 1_000 });
  directory.missed();
  t.same(await silence('a'), { a: 0 });
  t.match((await directory.list(['a'])).gateways, [{ instanceId: 'a', acknowledgement: null }]);
});

t.test('whoever cannot hear, or stopped hearing during the look, says so', async (t) => {
  const { directory, put, source } = start();
  put('a');
  const isHearing = async (): Promise<boolean> => (await directory.list([])).isHearing;
  t.equal(await isHearing(), true);
  source.hearing = false;
  t.equal(await isHearing(), false);
  source.hearing = true;
  const { read } = source;
  source.read = (names) => {
    source.epoch += 1;
    return read(names);
  };
  t.equal(await isHearing(), false, 'the connections were opened anew');
  source.read = (names) => {
    source.hearing = false;
    return read(names);
  };
  t.equal(await isHearing(), false);
  source.hearing = true;
  source.catchUp = () => Promise.reject(new Error('no answer'));
  await t.rejects(directory.list([]), /no answer/);
});

t.test('what came while nothing could be heard is looked for again', async (t) => {
  const { directory, put, silence, source } = start();
  t.same(await silence(), {});
  put('unheard');
  t.same(await silence(), {}, 'where everything is heard, nobody looks through a million records');
  directory.missed();
  source.hearing = false;
  t.same(Object.keys(await silence()), ['unheard']);
  put('later');
  t.same(Object.keys(await silence()), ['unheard', 'later'], 'still deaf');
  source.hearing = true;
  const names = source.names.bind(source);
  source.names = () => {
    source.epoch += 1;
    return names();
  };
  await silence();
  source.names = names;
  put('between');
  t.same(Object.keys(await silence()), ['unheard', 'later', 'between'], 'not sure that it heard all');
  put('nobody heard');
  t.equal(Object.keys(await silence()).length, 3);
});

t.test('an acknowledgement in another one’s name is none', async (t) => {
  const { directory, put, stored } = start();
  put('a');
  stored.set('mg:gateway:b', JSON.stringify({ instanceId: 'a', ...gateway, revision: 9 }));
  t.match((await directory.list([])).gateways, [
    { instanceId: 'a', acknowledgement: { revision: 3 } },
    { instanceId: 'b', acknowledgement: null },
  ]);
});

t.test('the difference of clocks is that at the last notice', async (t) => {
  const { clocks, directory, hear, put } = start();
  const skews = async () => (await directory.list([])).gateways.map((one) => one.clockSkewMilliseconds);
  put('a', { now: clocks.wall + 7_000 });
  t.same(await skews(), [null], 'nobody knows when one that was found was written');
  hear('a');
  clocks.wall += 60_000;
  t.same(await skews(), [7_000]);
  put('a', { now: clocks.wall - 3_000 });
  hear('a');
  directory.missed();
  t.same(await skews(), [-3_000], 'looking for others is not hearing of this one');
  put('a');
  hear('a');
  t.same(await skews(), [null], 'an earlier release does not tell its time');
});
