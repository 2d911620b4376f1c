import { once } from 'node:events';
import net, { type AddressInfo, type Socket } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { RedisRecords } from '../../src/adapters/redis/gateway/redis-records.js';
import { StoreState } from '../../src/adapters/redis/store-state.js';
import { lookupIdOf } from '../../src/gateway/api-key.js';
import { acknowledgementOf, startEnrolling } from '../adapters/enrolling.js';
import { keyStatus } from '../adapters/key-status.js';
import { seededKey, seededRecords } from '../adapters/key-store-contract.js';
import { type RedisServer, startRedis, type Teardown, until, withoutRedis } from '../adapters/redis-server.js';

const lookupId = lookupIdOf(seededKey, null);
const keyName = `mg:key:${lookupId}`;
const nowhere = { sentinels: null, masterName: '', cluster: null, username: null, password: null, ca: null };

function open(t: Teardown, url: string) {
  const records = new RedisRecords({
    address: { ...nowhere, url, commandTimeoutMilliseconds: 200 },
    prefix: 'mg:',
    cache: {
      ...{ maxEntries: 10, maxAgeMilliseconds: 60_000, unknownMaxEntries: 10, unknownMaxAgeMilliseconds: 5_000 },
      maxStaleMilliseconds: 30_000,
    },
    identity: { instanceId: 'g', environment: 'live', host: 'test', startedAt: '2026-01-01T00:00:00.000Z' },
    clock: { now: () => Date.now() },
    ...{ onMalformed: () => undefined, onLost: () => undefined, onFound: () => undefined },
  });
  t.teardown(() => records.close());
  return { records, status: (id = lookupId) => keyStatus(records, id) };
}

async function startSeeded(t: Teardown, status: string, settings: readonly string[] = []): Promise<RedisServer> {
  const server = await startRedis(t, settings);
  for (const [name, value] of Object.entries(seededRecords)) await server.client.set(name, JSON.stringify(value));
  await server.client.set(keyName, JSON.stringify({ ...(seededRecords[keyName] as object), status }));
  await server.client.set('mg:revision', '1');
  return server;
}

// Redis was restarted from an old snapshot in which a revoked key is active. Regression: a gateway that started after
// that could not detect it. It accepted the key until the registry had rewritten the revocation, however long the
// registry was down.
t.test('Redis rollback: a gateway that starts on an old snapshot is unavailable', { skip: withoutRedis }, async (t) => {
  const server = await startSeeded(t, 'ACTIVE');
  const registry = startEnrolling(t, server, 'g');
  await registry.name({ servers: ['beforeTheRestart'] });
  const { records, status } = open(t, server.url);
  await until(() => (records.unavailableReason() ?? '').includes('has not compared'), 'it reports the reason');
  for (const end = Date.now() + 1_000; Date.now() < end;) {
    await wait(10);
    t.equal(await status(), 'KeyStoreUnavailable');
  }
  await server.client.set(keyName, JSON.stringify({ ...(seededRecords[keyName] as object), status: 'REVOKED' }));
  await registry.name();
  await until(async () => (await status()).startsWith('REVOKED'), 'the registry has compared the server');
});

// A running server loads an older snapshot. Its run id, its connections and its meta record stay the same. Only the
// invalidation of all keys and then the lower revision reveal it.
t.test(
  'Redis rollback while running: the server is not queried before the next heartbeat',
  { skip: withoutRedis },
  async (t) => {
    const server = await startSeeded(t, 'ACTIVE', ['enable-debug-command yes']);
    await startEnrolling(t, server, 'g').name();
    const { status } = open(t, server.url);
    await until(async () => (await status()) === 'ACTIVE (cache)', 'enrolled');
    await server.client.save();
    await server.client.set(keyName, JSON.stringify({ ...(seededRecords[keyName] as object), status: 'REVOKED' }));
    await server.client.set('mg:revision', '2');
    await until(async () => (await status()) === 'REVOKED (cache)', 'revoked');
    await until(async () => (await acknowledgementOf(server, 'g'))?.revision === 2, 'the gateway knows the revision');
    const seen = new Set<string>();
    let reloadedAt = Infinity;
    const lookups = (async () => {
      let after = 0;
      // Looks the key up until cached records are served as stale, and for at least three heartbeats after the reload.
      const isEnough = (): boolean => after >= 500 && Date.now() - reloadedAt > 1_600 && seen.has('REVOKED (stale)');
      for (const end = Date.now() + 30_000; !isEnough() && Date.now() < end;) {
        await wait(1);
        seen.add(await status());
        if (reloadedAt !== Infinity) after += 1;
      }
    })();
    await server.client.call('DEBUG', 'RELOAD', 'NOSAVE');
    reloadedAt = Date.now();
    await lookups;
    t.equal(await server.client.get('mg:revision'), '1', 'the server went back to the old revision');
    t.notOk([...seen].join().includes('ACTIVE'), [...seen].join());
    t.ok(seen.has('REVOKED (stale)'), 'cached records are still served');
    t.equal(await status('0'.repeat(64)), 'KeyStoreUnavailable', 'no other key is looked up');
  },
);

/**
 * A relay that acts like a host name: new connections lead to the port `to`, which the test can change. Open
 * connections stay with the first server until they are cut.
 */
async function startName(t: Teardown, port: number) {
  const connections = new Set<{ readonly near: Socket; isSubscribed: boolean }>();
  const name = { to: port, isSilent: false };
  const server = net.createServer((near) => {
    const far = net.connect(name.to, '127.0.0.1');
    const connection = { near, isSubscribed: false };
    connections.add(connection);
    near.on('data', (bytes: Buffer) => {
      connection.isSubscribed ||= bytes.includes('TRACKING');
      if (!name.isSilent) far.write(bytes);
    });
    far.on('data', (bytes: Buffer) => {
      if (!name.isSilent) near.write(bytes);
    });
    near.on('error', () => undefined).on('close', () => far.destroy());
    far.on('error', () => undefined).on('close', () => near.destroy());
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  t.teardown(() => {
    server.close();
    for (const { near } of connections) near.destroy();
  });
  const cut = (isSubscribed: boolean): void => {
    for (const one of connections) if (one.isSubscribed === isSubscribed) one.near.destroy();
  };
  return Object.assign(name, { url: `redis://127.0.0.1:${(server.address() as AddressInfo).port}`, cut });
}

// Regression: only the connection for queries was reopened, to another server. Until the next heartbeat the gateway
// applied the result of the previous heartbeat to the new server, and accepted a revoked key.
t.test(
  'a reopened connection is not queried before a heartbeat has succeeded on it',
  { skip: withoutRedis },
  async (t) => {
    for (const isSubscribed of [false, true]) {
      const [first, second] = [await startSeeded(t, 'REVOKED'), await startSeeded(t, 'ACTIVE')];
      await startEnrolling(t, first, 'none').name();
      await startEnrolling(t, second, 'none').name({ servers: ['another'] });
      const name = await startName(t, first.port);
      const { status } = open(t, name.url);
      await until(async () => (await status()) === 'REVOKED (store)', 'the first server replies');
      name.to = second.port;
      name.cut(isSubscribed);
      const seen = new Set<string>();
      for (const end = Date.now() + 2_000; Date.now() < end;) {
        await wait(1);
        seen.add(await status());
      }
      t.notOk([...seen].join().includes('ACTIVE'), [...seen].join());
    }
  },
);

t.test('while both Redis connections are silent, cached records are served', { skip: withoutRedis }, async (t) => {
  const server = await startSeeded(t, 'ACTIVE');
  await startEnrolling(t, server, 'g').name();
  const name = await startName(t, server.port);
  const { status } = open(t, name.url);
  await until(async () => (await status()) === 'ACTIVE (cache)', 'enrolled');
  name.isSilent = true;
  const seen = new Map<string, number>();
  for (const end = Date.now() + 6_000; Date.now() < end;) {
    await wait(20);
    const result = await status();
    seen.set(result, (seen.get(result) ?? 0) + 1);
  }
  t.ok(
    [...seen.keys()].every((result) => result.startsWith('ACTIVE')),
    JSON.stringify([...seen]),
  );
});

// After a failover the new master may lack the last writes, for example a revocation, and then has a lower revision. A
// gateway that trusted this master would accept the revoked key again.

const meta = JSON.stringify(seededRecords['mg:meta']);

/** Judges the replies of a store and remembers the result if it is trusted. Returns whether it is trusted. */
function judgeAndAdopt(state: StoreState, meta: string | null, revision: string | null): boolean {
  const trusted = state.judge(meta, revision, null, null);
  if (trusted !== null) state.adopt(trusted);
  return trusted !== null;
}

t.test('a store that lost changes is unavailable until it has them again', (t) => {
  const state = new StoreState();
  t.ok(judgeAndAdopt(state, meta, '7'));
  for (const revision of ['6', '6', '5', '6']) {
    t.notOk(judgeAndAdopt(state, meta, revision));
    t.match(state.reason, `its revision is ${revision}, but was 7 before`);
  }
  t.notOk(judgeAndAdopt(state, null, null));
  t.notOk(judgeAndAdopt(state, meta, '6'), 'also not after it was empty for a while');
  t.ok(judgeAndAdopt(state, meta, '7'));
  t.equal(state.reason, null);
  t.end();
});

const named = JSON.stringify({ ...(seededRecords['mg:meta'] as object), servers: ['a', 'b'], replicas: 1 });

// While an emptied store is being filled, the gateway trusts it record by record. A record may be old if the
// registry does not name the server. It may also be old if it is from an earlier generation (history of changes).
t.test('a store being filled counts only on servers that the registry names, and not in an earlier generation', (t) => {
  const filling = JSON.stringify({ ...(JSON.parse(named) as object), version: 2, filling: true, generation: 'r_2' });
  const judge = (servers: (string | null)[] | null, enrolledIn: string | null = null): boolean => {
    const state = new StoreState(() => undefined);
    t.equal(state.judge(filling, '7', servers, enrolledIn), null, 'the store is not complete');
    return state.filling !== null;
  };
  t.ok(judge(['a']));
  t.ok(judge(['b', 'a'], 'r_1'));
  for (const servers of [['c'], ['a', 'c'], [null], null]) t.notOk(judge(servers), String(servers));
  t.notOk(judge(['a'], 'r_3'), 'an earlier generation');
  const state = new StoreState();
  state.judge(filling, '7', ['a'], null);
  state.judge(named, '7', ['a'], null);
  t.equal(state.filling, null, 'the store is complete');
  t.end();
});

// Redis was restarted from an old snapshot. Regression: a gateway that started after that could not detect it, and
// accepted revoked keys until the registry had rewritten the changes.
t.test('a server is trusted when the registry names it or the gateway knows that it is complete', (t) => {
  const state = new StoreState();
  t.match(state.judge(named, '7', ['a'], null), { replicas: 1 });
  t.match(state.judge(named, '7', ['b', 'a'], null), { replicas: 1 });
  for (const [servers, reason] of [
    [
      ['c'],
      'has not compared this Redis server with its own database yet (run_id c); if this lasts more than a few seconds, check that a registry runs',
    ],
    [['a', 'c'], 'yet (run_id c)'],
    [[null], /grant the Redis user the right \+info/],
  ] as const) {
    t.equal(state.judge(named, '7', servers, null), null);
    t.match(state.reason, reason);
    t.equal(state.judge(named, '7', servers, 'of another history'), null);
  }
  const { generation } = state.judge(named, '7', ['a'], null) ?? { generation: '' };
  judgeAndAdopt(state, named, '7');
  t.match(
    state.judge(named, '7', ['c'], generation),
    { revision: 7 },
    'for a gateway that is enrolled in its generation',
  );
  t.match(state.notNamed, 'yet (run_id c)', 'the unnamed server is reported');
  state.adopt(state.judge(named, '7', ['a'], null) ?? { generation: '', revision: 0, replicas: null });
  t.equal(state.judge(named, '6', ['a'], generation), null, 'but not a server that lacks changes');
  t.equal(state.judge(named, '6', ['a'], null), null, 'also if the registry names it');
  const another = named.replace(generation, 'another');
  t.equal(state.judge(another, '1', ['c'], generation), null, 'nor a server with another generation');
  t.match(state.judge(another, '1', ['a'], generation), { generation: 'another', revision: 1 });
  t.end();
});

// After a failover, a gateway may reach the former master again, which lacks the revocations that the gateway has
// acknowledged since. Regression: without a secret for records, the gateway trusted it.
t.test('while a gateway is enrolled, it does not trust an earlier generation', (t) => {
  const metaOf = (generation: string): string => JSON.stringify({ ...(JSON.parse(named) as object), generation });
  for (const check of [null, () => undefined]) {
    const state = new StoreState(check);
    t.ok(judgeAndAdopt(state, metaOf('r_2'), '9'));
    t.equal(state.judge(metaOf('r_1'), '9', ['a'], 'r_2'), null);
    t.match(state.reason, 'earlier generation');
    t.match(state.judge(metaOf('r_2'), '9', ['a'], 'r_2'), { revision: 9 });
    t.match(state.judge(metaOf('r_3'), '1', ['a'], 'r_2'), { revision: 1 }, 'a later generation is trusted');
    t.match(state.judge(metaOf('r_1'), '1', ['a'], null), { revision: 1 }, 'so is any, without an enrolment');
  }
  t.end();
});

// In a snapshot from before an upgrade of the registry the meta record lists no Redis servers. Regression: the rules of
// the former release then applied again. They trust any server, also one that lacks a revocation.
t.test('a store that no longer names its servers is unavailable until it names them again', (t) => {
  for (const generation of [(seededRecords['mg:meta'] as { generation: string }).generation, 'another']) {
    const state = new StoreState();
    const former = JSON.stringify({ ...(seededRecords['mg:meta'] as object), generation });
    t.ok(judgeAndAdopt(state, former, '7'), 'the meta record of a registry of the former release');
    t.ok(state.isFormer);
    t.ok(judgeAndAdopt(state, named, '8'), 'the registry was upgraded');
    t.notOk(state.isFormer);
    for (const revision of ['8', '7', '9']) {
      t.notOk(judgeAndAdopt(state, former, revision), `revision ${revision} of generation ${generation}`);
      t.match(state.reason, 'lists no Redis servers, but it listed some before');
      t.equal(state.judge(former, revision, ['a'], generation), null, 'also for a gateway that is enrolled in it');
    }
    t.notOk(state.isFormer, 'the former rules do not apply either');
    t.match(state.judge(named, '9', ['a'], null), { revision: 9, replicas: 1 });
    t.equal(state.reason, null);
  }
  t.end();
});
