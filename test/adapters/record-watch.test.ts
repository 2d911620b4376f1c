import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { openRecordsStore } from '../../src/adapters/redis/registry/open-records-store.js';
import type { OpenedRecordsStore } from '../../src/adapters/redis/registry/open-records-store.js';
import type { WatchedRecords } from '../../src/gateway/store-ports.js';
import { type Place, places } from './record-places.js';
import { until } from './redis-cluster.js';
import { startRedis, withoutRedis } from './redis-server.js';
import type { Teardown } from './redis-server.js';
import { emptyList } from '../empty-list.js';

const credentials = { sentinels: null, masterName: '', username: null, password: null, ca: null };
const value = { status: 'ACTIVE', revision: 2 };
const generation = 'r_1';
const text = JSON.stringify({ ...value, generation });

interface Watched {
  readonly store: OpenedRecordsStore;
  readonly watched: WatchedRecords;
}

async function openWatched(t: Teardown, { url, cluster }: Place): Promise<Watched> {
  const address = { ...credentials, url, cluster, commandTimeoutMilliseconds: 5_000 };
  const store: OpenedRecordsStore = openRecordsStore(address, 'mg:', {
    onLost: () => undefined,
    onFound: () => undefined,
  });
  t.teardown(() => store.close());
  await until(async () => (await store.gateways([])).isFresh && (await store.snapshot()).meta === null, 'heard');
  await store.begin();
  const { watched } = store;
  if (watched === null) throw new Error('no notices are tracked');
  return { store, watched };
}

/** The names of records that another writer changed, once there are at least `length` and no notice is pending. */
async function changed({ store, watched }: Watched, length: number): Promise<string[]> {
  const names = new Set<string>();
  await until(async () => {
    for (const name of watched.take(10).names) names.add(name);
    // The watch's own read can expire a record, which causes a second notice. `gateways` resolves after that notice.
    await store.gateways([]);
    return names.size >= length && watched.isQuiet;
  }, `${length} names`);
  return [...names].toSorted();
}

for (const [what, start] of Object.entries(places)) {
  t.test(`records on ${what} are watched, compared and repaired`, { skip: withoutRedis }, async (t) => {
    const place = await start(t);
    const opened = await openWatched(t, place);
    const { store, watched } = opened;
    const client = async (name: string) => (await place.ownerOf(name)).client;
    const set = async (name: string, text: string | Buffer) => (await client(name)).set(name, text);
    const get = async (name: string) => (await client(name)).get(name);

    t.equal(watched.take(10).isIncomplete, true, 'earlier changes had no notices');
    t.equal(watched.take(10).isIncomplete, false);
    const own = Array.from({ length: 20 }, (_, index) => ({ name: `key:${index}`, value }));
    await store.write(own, 2, generation);
    await set('mg:key:foreign', text);
    await set('mg:gateway:x', text);
    t.same(await changed(opened, 1), ['key:foreign'], 'neither own writes nor other keys are reported');
    const notified = watched.next();
    await set('mg:key:0', text);
    await set('mg:key:1', text.replace('ACTIVE', 'ACTIV1'));
    await (await client('mg:key:2')).del('mg:key:2');
    await (await client('mg:key:3')).del('mg:key:3');
    await (await client('mg:key:3')).rpush('mg:key:3', 'x');
    await set('mg:key:4', Buffer.from([0x7b, 0xff, 0x7d]));
    await set('mg:key:5', JSON.stringify({ status: 'ACTIVE', revision: 2 ** 60 }));
    await (await client('mg:key:6')).pexpire('mg:key:6', 1);
    await notified;
    const wrong = ['key:1', 'key:2', 'key:3', 'key:4', 'key:5', 'key:6'];
    t.same(await changed(opened, 6), wrong, 'an unchanged value is correct');

    const expected = [...own, { name: 'key:foreign', value: null }, { name: 'key:nobody', value: null }];
    const { epoch, differences } = await watched.compare(expected, generation);
    t.equal(epoch, (await store.snapshot()).epoch);
    t.same(
      differences.map(({ name, isStored, stored }) => [name, isStored, stored]),
      [
        ['key:1', true, { ...value, generation, status: 'ACTIV1' }],
        ['key:2', false, null],
        ['key:3', true, null],
        ['key:4', true, null],
        ['key:5', true, { ...value, revision: 2 ** 60 }],
        ['key:6', false, null],
        ['key:foreign', true, { ...value, generation }],
      ],
    );
    await watched.repair(differences, generation);
    for (const { name } of own) t.equal(await get(`mg:${name}`), text, name);
    t.equal(await get('mg:key:foreign'), null);
    t.same((await watched.compare(expected, generation)).differences, []);
    await set('mg:key:7', 'x');
    t.same(await changed(opened, 1), ['key:7'], 'a repair is not reported');
    await set('mg:key:8', 'x');
    await wait(200);
    await watched.next();
    t.same(await changed(opened, 1), ['key:8'], 'a change before the wait is reported at once');

    const [flushed] = [await client('mg:key:7')];
    await flushed.flushall();
    t.not((await watched.compare(expected, generation)).epoch, epoch, 'a flush changes the epoch of a comparison');
    t.match(watched.take(10), { names: emptyList, isIncomplete: true });
  });
}

t.test('a registry that was paused does not overwrite a later record', { skip: withoutRedis }, async (t) => {
  for (const start of Object.values(places)) {
    const place = await start(t);
    const { store, watched } = await openWatched(t, place);
    await store.write([{ name: 'key:1', value }], 2, generation);
    const { client } = await place.ownerOf('mg:key:1');
    await client.set('mg:key:1', 'forged');
    const { differences } = await watched.compare([{ name: 'key:1', value }], generation);
    t.equal(differences.length, 1);
    const next = await openWatched(t, place);
    const later = { status: 'REVOKED', revision: 3 };
    await next.store.write([{ name: 'key:1', value: later }], 3, generation);
    await watched.repair(differences, generation).catch(() => undefined);
    t.same(JSON.parse((await client.get('mg:key:1')) ?? ''), { ...later, generation });
  }
});

t.test('a flood of notices is bounded, and the omission is reported', { skip: withoutRedis }, async (t) => {
  const server = await startRedis(t);
  const { watched } = await openWatched(t, { url: server.url, cluster: null, ownerOf: () => Promise.resolve(server) });
  watched.take(1);
  watched.take(1);
  await server.client.eval("for i = 1, 100100 do redis.call('SET', 'mg:key:' .. i, 'x') end", 0);
  await until(() => Promise.resolve(watched.take(1).isIncomplete), 'too many notices');
  await server.client.set(`mg:key:${'x'.repeat(300)}`, 'x');
  watched.rest();
  t.same(watched.take(1), { names: [], isIncomplete: true });
});
