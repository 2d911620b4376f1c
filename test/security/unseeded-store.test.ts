import t from 'tap';
import { StoreUnseeded } from '../../src/adapters/redis/records-link.js';
import { RecordNames } from '../../src/adapters/redis/record-names.js';
import { ServerLink } from '../../src/adapters/redis/server/server-link.js';
import { until } from '../adapters/redis-cluster.js';
import { startRedis, withoutRedis } from '../adapters/redis-server.js';

// Between a flush and the moment at which a gateway hears of it, every key would be unknown: an outage that looks like a bad key.
t.test('that a record is not there is believed of a seeded store alone', { skip: withoutRedis }, async (t) => {
  const { client, url } = await startRedis(t);
  const names = new RecordNames('mg:');
  const nothing = (): void => undefined;
  const untold = { onChanged: nothing, onEverythingChanged: nothing, onListening: nothing, onDeaf: nothing };
  const link = new ServerLink(
    {
      ...{ url, sentinels: null, masterName: '', cluster: null, username: null },
      password: null,
      ca: null,
      commandTimeoutMilliseconds: 2_000,
    },
    names,
    { ...untold, onReady: () => undefined },
    () => undefined,
  );
  t.teardown(() => {
    link.close();
  });
  await until(() => Promise.resolve(link.hearing), 'the store can be asked');
  const read = (id: string) => link.read(names.key(id), 'ours');
  const seed = (generation: string) =>
    client.set(names.meta, JSON.stringify({ version: 1, generation, projectedAt: '2026-01-01T00:00:00.000Z' }));
  await seed('ours');
  await client.set(names.key('known'), '{}');
  t.equal(await read('known'), '{}');
  t.equal(await read('unknown'), null);
  await client.del(names.meta);
  await t.rejects(read('unknown'), StoreUnseeded);
  await seed('of others');
  await t.rejects(read('unknown'), StoreUnseeded);
  await client.set(names.meta, '{"version":2}');
  await t.rejects(read('unknown'), StoreUnseeded);
  await seed('ours');
  t.equal(await read('unknown'), null);
});
