import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { openRecordsStore } from '../../src/adapters/redis/registry/open-records-store.js';
import type { OpenedRecordsStore } from '../../src/adapters/redis/registry/open-records-store.js';
import type { HostAndPort } from '../../src/adapters/redis/connection.js';
import type { WatchedRecords } from '../../src/gateway/store-ports.js';
import { startCluster, until } from './redis-cluster.js';
import { startRedis, withoutRedis } from './redis-server.js';
import type { RedisServer, Teardown } from './redis-server.js';

const credentials = { sentinels: null, masterName: '', username: null, password: null, ca: null };
const value = { status: 'ACTIVE', revision: 2 };
const generation = 'r_1';
const text = JSON.stringify({ ...value, generation });

/** Where records are watched, and the server that has a record. */
interface Place {
  readonly url: string;
  readonly cluster: readonly HostAndPort[] | null;
  readonly ownerOf: (name: string) => Promise<RedisServer>;
}

const places: Record<string, (t: Teardown) => Promise<Place>> = {
  'one server': async (t) => {
    const server = await startRedis(t);
    return { url: server.url, cluster: null, ownerOf: () => Promise.resolve(server) };
  },
  'a Cluster': async (t) => {
    const cluster = await startCluster(t, { replicas: false });
    const nodes = cluster.nodes.map(({ port }) => ({ host: '127.0.0.1', port }));
    return { url: 'redis://cluster', cluster: nodes, ownerOf: (name) => cluster.ownerOf(name) };
  },
};

async function openWatched(t: Teardown, { url, cluster }: Place) {
  const address = { ...credentials, url, cluster, commandTimeoutMilliseconds: 5_000 };
  const store: OpenedRecordsStore = openRecordsStore(address, 'mg:', {
    onLost: () => undefined,
    onFound: () => undefined,
  });
  t.teardown(() => store.close());
  await until(async () => (await store.gateways([])).isHearing && (await store.look()).meta === null, 'heard');
  await store.begin();
  const { watched } = store;
  if (watched === null) throw new Error('it is not watched');
  return { store, watched };
}

/** The next records that somebody else has changed. */
async function changed(watched: WatchedRecords, length: number): Promise<string[]> {
  const names: string[] = [];
  await until(() => {
    names.push(...watched.take(10).names);
    return Promise.resolve(names.length >= length);
  }, `${length} names`);
  return names.toSorted();
}

for (const [what, start] of Object.entries(places)) {
  t.test(`records on ${what} are watched, compared and repaired`, { skip: withoutRedis }, async (t) => {
    const place = await start(t);
    const { store, watched } = await openWatched(t, place);
    const client = async (name: string) => (await place.ownerOf(name)).client;
    const set = async (name: string, text: string | Buffer) => (await client(name)).set(name, text);
    const get = async (name: string) => (await client(name)).get(name);

    t.equal(watched.take(10).isIncomplete, true, 'of what was changed before nothing was heard');
    t.equal(watched.take(10).isIncomplete, false);
    const own = Array.from({ length: 20 }, (_, index) => ({ name: `key:${index}`, value }));
    await store.write(own, 2, generation);
    await set('mg:key:foreign', text);
    await set('mg:gateway:x', text);
    t.same(await changed(watched, 1), ['key:foreign'], 'what this registry wrote is none of it, nor what is no record');
    const told = watched.next();
    await set('mg:key:0', text);
    await set('mg:key:1', text.replace('ACTIVE', 'ACTIV1'));
    await (await client('mg:key:2')).del('mg:key:2');
    await (await client('mg:key:3')).del('mg:key:3');
    await (await client('mg:key:3')).rpush('mg:key:3', 'x');
    await set('mg:key:4', Buffer.from([0x7b, 0xff, 0x7d]));
    await set('mg:key:5', JSON.stringify({ status: 'ACTIVE', revision: 2 ** 60 }));
    await (await client('mg:key:6')).pexpire('mg:key:6', 1);
    await told;
    const wrong = ['key:1', 'key:2', 'key:3', 'key:4', 'key:5', 'key:6'];
    t.same(await changed(watched, 6), wrong, 'what is the same is as it should be');

    const expected = [...own, { name: 'key:foreign', value: null }, { name: 'key:nobody', value: null }];
    const { epoch, differences } = await watched.compare(expected, generation);
    t.equal(epoch, (await store.look()).epoch);
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
    t.same(await changed(watched, 1), ['key:7'], 'and no repair is');
    await set('mg:key:8', 'x');
    await wait(200);
    await watched.next();
    t.same(await changed(watched, 1), ['key:8'], 'what came while nobody waited is told of at once');

    const [flushed] = [await client('mg:key:7')];
    await flushed.flushall();
    t.not((await watched.compare(expected, generation)).epoch, epoch, 'a flush is seen by whoever compares');
    t.match(watched.take(10), { names: [], isIncomplete: true });
  });
}

t.test('a registry that was paused replaces no later record', { skip: withoutRedis }, async (t) => {
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

t.test('notices without end are bounded, and what is left out is said', { skip: withoutRedis }, async (t) => {
  const server = await startRedis(t);
  const { watched } = await openWatched(t, { url: server.url, cluster: null, ownerOf: () => Promise.resolve(server) });
  watched.take(1);
  watched.take(1);
  await server.client.eval("for i = 1, 100100 do redis.call('SET', 'mg:key:' .. i, 'x') end", 0);
  await until(() => Promise.resolve(watched.take(1).isIncomplete), 'there were too many');
  await server.client.set(`mg:key:${'x'.repeat(300)}`, 'x');
  watched.rest();
  t.same(watched.take(1), { names: [], isIncomplete: true });
});
