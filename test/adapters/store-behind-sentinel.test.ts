import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import type { RedisAddress } from '../../src/adapters/redis/connection.js';
import { RedisRecordsStore } from '../../src/adapters/redis/registry/redis-records-store.js';
import { makeCertificate } from '../edge/certificates.js';
import { startRedis, withoutRedis } from './redis-server.js';
import type { Teardown } from './redis-server.js';

// Regression: if a registry read the store before it was connected, the connections stopped permanently. So a registry
// behind Sentinel never projected anything.
t.test('a store that is read before it is connected connects later', { skip: withoutRedis }, async (t) => {
  const master = await startRedis(t);
  const sentinel = await startRedis(t, [`sentinel monitor mymaster 127.0.0.1 ${master.port} 1`], ['--sentinel']);
  const anonymous = { username: null, password: null, ca: null };
  const sentinels = [{ host: '127.0.0.1', port: sentinel.port }];
  const store = new RedisRecordsStore(
    {
      ...anonymous,
      ...{ url: 'redis://ignored:1', sentinels, masterName: 'mymaster', cluster: null },
      commandTimeoutMilliseconds: 200,
    },
    'mg:',
    { onLost: () => undefined, onFound: () => undefined },
  );
  t.teardown(() => store.close());
  await t.rejects(store.snapshot(), /no majority of the configured sentinels/);
  let found = null;
  for (const end = Date.now() + 60_000; found === null && Date.now() < end;) {
    await wait(20);
    found = await store.snapshot().catch(() => null);
  }
  t.match(found, { meta: null, revision: 0 });
});

t.test('sentinels with their own user and password, with and without TLS', { skip: withoutRedis }, async (t) => {
  const certificate = await makeCertificate();
  const master = await startRedis(t, ['user default on >of-redis ~* &* +@all']);
  const monitoring = [
    `sentinel monitor mymaster 127.0.0.1 ${master.port} 1`,
    'sentinel auth-pass mymaster of-redis',
    'user default off',
    'user gateway on >of-sentinels ~* &* +@all',
  ];
  for (const secure of [null, certificate]) {
    const sentinel = await startRedis(t, monitoring, ['--sentinel'], secure);
    const open = (password: string | null) =>
      openStore(t, {
        ...{ url: 'redis://ignored:1', masterName: 'mymaster', cluster: null },
        ...{ username: null, password: 'of-redis', ca: Buffer.from(certificate.cert) },
        sentinels: [{ host: 'localhost', port: sentinel.port }],
        sentinelAccess: { username: 'gateway', password, isSecure: secure !== null },
        commandTimeoutMilliseconds: 1_000,
      });
    t.match(await found(open('of-sentinels'), 60_000), { meta: null, revision: 0 }, `TLS: ${secure !== null}`);
    t.equal(await found(open('of-redis'), 500), null, 'the password of Redis is not that of the sentinels');
  }
});

function openStore(t: Teardown, address: RedisAddress): RedisRecordsStore {
  const store = new RedisRecordsStore(address, 'mg:', { onLost: () => undefined, onFound: () => undefined });
  t.teardown(() => store.close());
  return store;
}

/** The store's state, once it replies; null if it does not within this time. */
async function found(store: RedisRecordsStore, milliseconds: number) {
  for (const end = Date.now() + milliseconds; Date.now() < end;) {
    const state = await store.snapshot().catch(() => null);
    if (state !== null) return state;
    await wait(20);
  }
  return null;
}
