import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { RedisRecords } from '../../src/adapters/redis/gateway/redis-records.js';
import { sql } from '../../src/database/kysely.js';
import { BadKeyThrottle } from '../../src/edge/auth/bad-key-throttle.js';
import { GatewayError } from '../../src/edge/request/errors.js';
import { generateApiKey, lookupIdOf } from '../../src/gateway/api-key.js';
import type { KeyStore } from '../../src/gateway/key-store.js';
import { RecordKeyStore } from '../../src/gateway/record-key-store.js';
import {
  lockListForInsert,
  openServicesDatabase,
  type ServicesTransaction,
} from '../../src/services/services-database.js';
import { startEnrolling } from '../adapters/enrolling.js';
import { seededRecords } from '../adapters/key-store-contract.js';
import { startRedis, type Teardown } from '../adapters/redis-server.js';
import { createPostgresDatabase, postgresAlone } from '../database/each-database.js';
import { ask, startTestGateway, startUpstream } from '../edge/harness.js';
import {
  addWallet,
  balanceOf,
  bankPayout,
  merchantA,
  merchantB,
  patient,
  sandboxOfA,
  servicesFixture,
} from '../services/services-fixture.js';
import { until } from '../telemetry/open-log.js';

const longerThanTheTest = 60;

/**
 * Makes the transaction hold the lock that a payout of merchant A takes, as if a process hung during the payout.
 * Disables a timeout of PostgreSQL, which could end the transaction on a slow machine.
 */
async function hang(transaction: ServicesTransaction): Promise<void> {
  await sql`set local idle_in_transaction_session_timeout = 0`.execute(transaction);
  await lockListForInsert(transaction, merchantA);
}

// Regression: the requests of one merchant, each waiting for one of its own locks, took all database connections. Other
// merchants got no connection.
t.test(
  'noisy neighbour: a merchant waiting for its own locks leaves database connections to others',
  postgresAlone,
  async (t) => {
    const url = await createPostgresDatabase(t);
    const pool = { ...patient, connectTimeoutSeconds: longerThanTheTest };
    const { call } = await servicesFixture(t, { url, pool });
    const control = await openServicesDatabase({ url, pool: patient });
    t.teardown(() => control.destroy());
    const [own, other] = [
      await addWallet(control, merchantA, { balance: 1000 }),
      await addWallet(control, merchantB, { balance: 1000 }),
    ];
    const pay = (tenant: typeof merchantA, walletId: string) =>
      call(tenant, 'POST', '/dev/payouts', { body: bankPayout(walletId, { amount: 1 }) });
    const waiting = async () => {
      const { rows } = await sql<{ count: number }>`select count(*) as count from pg_stat_activity
      where datname = current_database() and wait_event_type = 'Lock'`.execute(control);
      return rows[0]?.count ?? 0;
    };
    const ways = {
      'payouts from a wallet that is locked': () => pay(merchantA, own),
      'lists while a payout is being made': () => call(merchantA, 'GET', '/dev/payouts'),
    };
    for (const [about, ask] of Object.entries(ways)) {
      const sent = await control.transaction().execute(async (hanging) => {
        await hang(hanging);
        await hanging.updateTable('wallets').set({ currency: 'NGN' }).where('id', '=', own).execute();
        const sent = Array.from({ length: 20 }, ask);
        while ((await waiting()) < pool.maxConnections / 2) await wait(1);
        t.equal((await call(merchantB, 'GET', '/transactions')).status, 200, about);
        t.equal((await pay(merchantB, other)).status, 201);
        t.equal((await call(null, 'GET', '/readyz')).status, 200);
        t.equal(await waiting(), pool.maxConnections / 2, 'the merchant has half of the connections');
        return sent;
      });
      const responses = await Promise.all(sent);
      t.ok(
        responses.every(({ status }) => status < 300),
        'all of its requests succeed in the end',
      );
    }
    t.equal(await balanceOf(control, own), 980);
  },
);

t.test(
  'a request that waits too long for its merchant’s share of connections is 503, also in the sandbox',
  postgresAlone,
  async (t) => {
    const url = await createPostgresDatabase(t);
    const { app, call, logged } = await servicesFixture(t, { url, pool: { ...patient, connectTimeoutSeconds: 4 } });
    const control = await openServicesDatabase({ url, pool: patient });
    t.teardown(() => control.destroy());
    const lists = await control.transaction().execute(async (hanging) => {
      await hang(hanging);
      const lists = Array.from({ length: 2 }, () => call(merchantA, 'GET', '/dev/payouts'));
      const headers = { 'x-merchant-id': sandboxOfA.merchantId, 'x-merchant-environment': sandboxOfA.environment };
      const response = await app.inject({ url: '/transactions', headers });
      t.match(response, { statusCode: 503, headers: { 'retry-after': '1' } });
      t.same(response.json(), {
        success: false,
        message: 'Service unavailable',
        data: { code: 'service_unavailable', errors: [] },
      });
      t.match(logged, [{ details: { err: /all database connections that one merchant may use/ } }]);
      return lists;
    });
    for (const { status } of await Promise.all(lists)) t.equal(status, 200);
  },
);

const limits = {
  ...{ badKeys: 10, totalBadKeys: 1_000_000, windowSeconds: 60, pauseSeconds: 60, maxSources: 100 },
  ...{ lookupsPerSecond: 5, totalLookupsPerSecond: 100 },
};
const nat = '192.0.2.7';
const generateKeys = (count: number): string[] => Array.from({ length: count }, () => generateApiKey('live'));
/** The key with a wrong checksum. */
const withWrongChecksum = (key: string): string => key.slice(0, -1) + (key.endsWith('0') ? '1' : '0');

/**
 * A throttle that already limits `nat`, with a clock that the test sets. Its store finds no key, and adds the id of
 * each lookup to `lookedUp`.
 */
function setUp(knows?: KeyStore['knows'], over: Partial<typeof limits> = {}) {
  const clock = { now: 0 };
  const throttle = new BadKeyThrottle({ ...limits, ...over }, () => clock.now);
  for (let count = 0; count < limits.badKeys; count += 1) throttle.denied(nat, 'key_unknown');
  const lookedUp: string[] = [];
  const store = {
    ...(knows === undefined ? {} : { knows }),
    find: (lookupId: string) => {
      lookedUp.push(lookupId);
      return { credential: null, source: 'store', ageMilliseconds: 0 } as const;
    },
  };
  /** Sends these keys. @returns for each of them whether it was looked up */
  const send = (
    keys: readonly string[],
    connection: () => { usedFirstLookup: boolean } | null = () => null,
  ): boolean[] =>
    keys.map((key) => {
      try {
        void throttle.sparing(store, { source: nat, key, connection: connection() }).find(lookupIdOf(key, null));
        return true;
      } catch (error) {
        if (error instanceof GatewayError && error.code === 'throttled') return false;
        throw error;
      }
    });
  return { clock, throttle, lookedUp, send };
}

t.test('a known key is looked up however many unknown keys come from its address', (t) => {
  const valid = generateKeys(40);
  const ids = new Set(valid.map((key) => lookupIdOf(key, null)));
  const { send, lookedUp } = setUp((lookupId) => ids.has(lookupId));
  send(generateKeys(1_000));
  lookedUp.length = 0;
  t.equal(send(valid).filter((isLookedUp) => !isLookedUp).length, 0);
  t.equal(lookedUp.length, 40);
  t.end();
});

t.test('a key with a wrong checksum uses no lookup', (t) => {
  const { send, lookedUp, throttle } = setUp();
  send(generateKeys(1_000).map(withWrongChecksum), () => ({ usedFirstLookup: false }));
  t.equal(lookedUp.length, 0);
  t.equal(throttle.refusedLookups.checksum, 1_000);
  t.equal(send(generateKeys(40)).filter((isLookedUp) => !isLookedUp).length, 0);
  t.end();
});

t.test('invented keys of other formats use no lookups of generated keys', (t) => {
  const { send, lookedUp } = setUp();
  send(Array.from({ length: 1_000 }, (_, count) => `svc_live_guess${count}`));
  t.equal(lookedUp.length, limits.totalLookupsPerSecond + limits.lookupsPerSecond, 'only as many as the budget allows');
  t.equal(send(generateKeys(40)).filter((isLookedUp) => !isLookedUp).length, 0);
  t.end();
});

t.test('with the lookup budget used up, the first unknown key of each connection is still looked up', (t) => {
  const { send, throttle } = setUp();
  const attackers = { usedFirstLookup: false };
  send(generateKeys(2_000), () => attackers);
  t.ok(throttle.refusedLookups.budget > 1_000, 'the budget for unknown keys is used up');
  t.equal(
    send(generateKeys(40), () => ({ usedFirstLookup: false })).filter((isLookedUp) => !isLookedUp).length,
    0,
    'all 40 keys are looked up on connections of their own',
  );
  t.same(
    send(generateKeys(3), () => attackers),
    [false, false, false],
    'but no second key of a connection',
  );
  t.end();
});

t.test('lookups are bounded per throttled address and in total', (t) => {
  const { send, lookedUp, clock } = setUp();
  for (let second = 0; second < 10; second += 1) {
    send(generateKeys(500));
    clock.now += 1_000;
  }
  t.equal(lookedUp.length, 10 * (limits.totalLookupsPerSecond + limits.lookupsPerSecond));
  t.end();
});

t.test('when the total is exceeded, an address below its own limit still gets lookups', (t) => {
  const { throttle, send } = setUp(undefined, { totalBadKeys: 20 });
  for (let count = 0; count < 30; count += 1) throttle.denied(`198.51.100.${count}`, 'key_unknown');
  t.ok(throttle.isTotalReached);
  send(generateKeys(1_000));
  const clean = { source: '203.0.113.9', connection: null };
  const store = { find: () => ({ credential: null, source: 'store', ageMilliseconds: 0 }) as const };
  const refused = generateKeys(7).filter((key) => {
    try {
      void throttle.sparing(store, { ...clean, key }).find(lookupIdOf(key, null));
      return false;
    } catch {
      return true;
    }
  });
  t.equal(refused.length, 2, 'five lookups a second');
  t.end();
});

const keyRecord = (number: number): string =>
  JSON.stringify({
    ...{ keyId: `key_${number}`, merchantId: 'm_1', environment: 'live', status: 'ACTIVE' },
    ...{ permissions: ['*'], expiresAt: null, revision: 7 },
  });

/** A Redis with these keys of one merchant, and the records of a gateway whose cache holds only ten of them. */
async function openStore(t: Teardown, keys: readonly string[], preload: boolean) {
  const server = await startRedis(t);
  const registry = startEnrolling(t, server, 'g');
  const merchant = {
    merchantId: 'm_1',
    name: 'M',
    status: 'ACTIVE',
    goLive: true,
    ipAllowlist: null,
    originAllowlist: null,
  };
  const pipeline = server.client.pipeline();
  pipeline.set('mg:meta', JSON.stringify(seededRecords['mg:meta'])).set('mg:revision', '7');
  pipeline.set('mg:merchant:m_1', JSON.stringify({ ...merchant, revision: 7 }));
  for (const [number, key] of keys.entries()) pipeline.set(`mg:key:${lookupIdOf(key, null)}`, keyRecord(number));
  await pipeline.exec();
  await registry.name();
  const nowhere = { sentinels: null, masterName: '', cluster: null, username: null, password: null, ca: null };
  const records = new RedisRecords({
    address: { ...nowhere, url: server.url, commandTimeoutMilliseconds: 1_000 },
    prefix: 'mg:',
    cache: {
      ...{ maxEntries: 10, maxAgeMilliseconds: 60_000, maxStaleMilliseconds: 30_000 },
      ...{ unknownMaxEntries: 10, unknownMaxAgeMilliseconds: 60_000 },
    },
    identity: { instanceId: 'g', environment: 'live', host: 'test', startedAt: '2026-01-01T00:00:00.000Z' },
    clock: { now: () => Date.now() },
    ...{ onMalformed: () => undefined, onLost: () => undefined, onFound: () => undefined },
    preload: preload ? { onFull: () => undefined, onRefused: () => undefined } : undefined,
  });
  t.teardown(() => records.close());
  await until(() => records.unavailableReason() === null && records.startingReason() === null);
  return { server, records };
}

/** A gateway over these records, whose throttle limits the client address `nat`. */
async function startThrottled(t: Teardown, records: RedisRecords) {
  const gateway = await startTestGateway(t, {
    keyStore: new RecordKeyStore(records),
    upstreamUrl: (await startUpstream(t)).url,
    config: { throttle: { badKeys: 5, lookupsPerSecond: 1, totalLookupsPerSecond: 1 }, trustedProxies: ['127.0.0.1'] },
  });
  // The requests come through a trusted proxy, whose connections do not stand for clients. So the gateway grants no
  // lookup for the first key on a connection, and only the lookup budget applies.
  const statusOf = async (key: string): Promise<number> => {
    const headers = [
      ['x-forwarded-for', nat],
      ['x-api-key', key],
    ] as const;
    return (await ask(gateway, { headers })).status;
  };
  const attack = async (count: number): Promise<void> => {
    for (const key of generateKeys(count)) await statusOf(key);
  };
  await attack(20);
  return { gateway, attack, statusOf };
}

t.test('40 valid keys that the process has not seen and cannot cache are all accepted', async (t) => {
  const keys = generateKeys(40);
  const { server, records } = await openStore(t, keys, true);
  await until(() => keys.every((key) => records.knowsKey(lookupIdOf(key, null))));
  const { attack, statusOf } = await startThrottled(t, records);
  const statuses: number[] = [];
  for (const key of keys) {
    await attack(1);
    statuses.push(await statusOf(key));
  }
  t.same(
    statuses,
    keys.map(() => 200),
  );
  t.equal(await statusOf(generateApiKey('live')), 429, 'an invented key is throttled');
  const later = generateApiKey('live');
  await server.client.set(`mg:key:${lookupIdOf(later, null)}`, keyRecord(99));
  await until(() => records.knowsKey(lookupIdOf(later, null)));
  t.equal(await statusOf(later), 200, 'a key that was created meanwhile is accepted');
});

t.test('40 valid keys evicted after their acceptance are all accepted again', async (t) => {
  const keys = generateKeys(40);
  const { records } = await openStore(t, keys, false);
  const find = new RecordKeyStore(records);
  for (const key of keys) t.not((await find.find(lookupIdOf(key, null))).credential, null);
  t.equal(records.recordStats().known.entries, 10 + 1, 'the other keys were evicted');
  const { statusOf } = await startThrottled(t, records);
  const statuses: number[] = [];
  for (const key of keys) statuses.push(await statusOf(key));
  t.same(
    statuses,
    keys.map(() => 200),
  );
});

t.test('an invented key is cached as unknown after one lookup and costs no second one', async (t) => {
  const { records } = await openStore(t, [], false);
  const key = generateApiKey('live');
  const id = lookupIdOf(key, null);
  t.notOk(records.knowsKey(id));
  await records.key(id);
  await until(() => records.knowsKey(id));
});
