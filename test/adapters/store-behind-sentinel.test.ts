import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { RedisRecordsStore } from '../../src/adapters/redis/redis-records-store.js';
import { startRedis, withoutRedis } from './redis-server.js';

// The registry looks as soon as it has started, before it is connected. The connections were given up then, for good: it never
// projected anything behind Sentinel.
t.test('a store that is looked at before it is connected is found', { skip: withoutRedis }, async (t) => {
  const master = await startRedis(t);
  const sentinel = await startRedis(t, [`sentinel monitor mymaster 127.0.0.1 ${master.port} 1`], ['--sentinel']);
  const nobody = { username: null, password: null, ca: null };
  const sentinels = [{ host: '127.0.0.1', port: sentinel.port }];
  const store = new RedisRecordsStore(
    {
      ...nobody,
      ...{ url: 'redis://ignored:1', sentinels, masterName: 'mymaster', cluster: null },
      commandTimeoutMilliseconds: 200,
    },
    'mg:',
    { onLost: () => undefined, onFound: () => undefined },
  );
  t.teardown(() => store.close());
  await t.rejects(store.look(), /no majority of the configured sentinels/);
  let found = null;
  for (const end = Date.now() + 10_000; found === null && Date.now() < end;) {
    await wait(20);
    found = await store.look().catch(() => null);
  }
  t.match(found, { meta: null, revision: 0 });
});
