import { once } from 'node:events';
import net, { type AddressInfo, type Socket } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { RedisRecords } from '../../src/adapters/redis/gateway/redis-records.js';
import { StoreState } from '../../src/adapters/redis/store-state.js';
import { lookupIdOf } from '../../src/gateway/api-key.js';
import { startEnrolling } from '../adapters/enrolling.js';
import { keyStatus } from '../adapters/key-status.js';
import { seededKey, seededRecords } from '../adapters/key-store-contract.js';
import { type RedisServer, startRedis, type Teardown, withoutRedis } from '../adapters/redis-server.js';

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

async function until(holds: () => Promise<boolean> | boolean, what: string): Promise<void> {
  for (const end = Date.now() + 15_000; !(await holds());) {
    if (Date.now() > end) throw new Error(`never: ${what}`);
    await wait(10);
  }
}

// Redis was restarted on an old snapshot, in which a revoked key is active. A gateway that started after that had nothing to compare
// the snapshot with, and let the key in until the registry had written the revocation again: without end, while that was away.
t.test('Redis rollback: a gateway that starts on an old snapshot is unavailable', { skip: withoutRedis }, async (t) => {
  const server = await startSeeded(t, 'ACTIVE');
  const registry = startEnrolling(t, server, 'g');
  await registry.name({ servers: ['beforeTheRestart'] });
  const { records, status } = open(t, server.url);
  await until(() => (records.unavailableReason() ?? '').includes('has not compared'), 'it says why');
  for (const end = Date.now() + 1_000; Date.now() < end;) {
    await wait(10);
    t.equal(await status(), 'KeyStoreUnavailable');
  }
  await server.client.set(keyName, JSON.stringify({ ...(seededRecords[keyName] as object), status: 'REVOKED' }));
  await registry.name();
  await until(async () => (await status()).startsWith('REVOKED'), 'compared');
});

// A server loads an older file while it runs: it keeps its name, its connections and its meta record. All that tells is the notice that
// everything has changed, and then the revision.
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
    await wait(100);
    const seen = new Set<string>();
    const asking = (async () => {
      for (const end = Date.now() + 1_500; Date.now() < end;) {
        await wait(1);
        seen.add(await status());
      }
    })();
    await server.client.call('DEBUG', 'RELOAD', 'NOSAVE');
    await asking;
    t.equal(await server.client.get('mg:revision'), '1', 'it went back');
    t.notOk([...seen].join().includes('ACTIVE'), [...seen].join());
    t.ok(seen.has('REVOKED (stale)'), 'what is held is served still');
    t.equal(await status('0'.repeat(64)), 'KeyStoreUnavailable', 'nothing else is answered');
  },
);

/** A name that leads to one server and, later, to another one; connections stay where they are until they are cut. */
async function startName(t: Teardown, port: number) {
  const open = new Set<{ readonly near: Socket; hears: boolean }>();
  const name = { to: port, isSilent: false };
  const server = net.createServer((near) => {
    const far = net.connect(name.to, '127.0.0.1');
    const one = { near, hears: false };
    open.add(one);
    near.on('data', (bytes: Buffer) => {
      one.hears ||= bytes.includes('TRACKING');
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
    for (const { near } of open) near.destroy();
  });
  const cut = (hears: boolean): void => {
    for (const one of open) if (one.hears === hears) one.near.destroy();
  };
  return Object.assign(name, { url: `redis://127.0.0.1:${(server.address() as AddressInfo).port}`, cut });
}

// Only the connection that asks was opened anew, and led to another server: what a beat had found out about the first one was
// taken for true of the other until the next beat, and a revoked key was let in.
t.test(
  'a reopened connection is not queried before a heartbeat has succeeded on it',
  { skip: withoutRedis },
  async (t) => {
    for (const hears of [false, true]) {
      const [before, behind] = [await startSeeded(t, 'REVOKED'), await startSeeded(t, 'ACTIVE')];
      await startEnrolling(t, before, 'none').name();
      await startEnrolling(t, behind, 'none').name({ servers: ['another'] });
      const name = await startName(t, before.port);
      const { status } = open(t, name.url);
      await until(async () => (await status()) === 'REVOKED (store)', 'asked');
      name.to = behind.port;
      name.cut(hears);
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
    const answer = await status();
    seen.set(answer, (seen.get(answer) ?? 0) + 1);
  }
  t.ok(
    [...seen.keys()].every((answer) => answer.startsWith('ACTIVE')),
    JSON.stringify([...seen]),
  );
});

// A replica that was behind becomes the master: what was written last is gone, a revocation perhaps. A gateway that takes the
// older number for the newest one, a moment later, lets the revoked key in again.

const meta = JSON.stringify(seededRecords['mg:meta']);

/** What is believed of a store, after it was asked; what is believed is remembered. */
function ask(state: StoreState, meta: string | null, revision: string | null): boolean {
  const believed = state.judge(meta, revision, null, null);
  if (believed !== null) state.adopt(believed);
  return believed !== null;
}

t.test('a store that lost changes is unavailable until it has them again', (t) => {
  const state = new StoreState();
  t.ok(ask(state, meta, '7'));
  for (const revision of ['6', '6', '5', '6']) {
    t.notOk(ask(state, meta, revision));
    t.match(state.reason, `it has revision ${revision}, but had 7 before`);
  }
  t.notOk(ask(state, null, null));
  t.notOk(ask(state, meta, '6'), 'nor after it was empty for a while');
  t.ok(ask(state, meta, '7'));
  t.equal(state.reason, null);
  t.end();
});

const named = JSON.stringify({ ...(seededRecords['mg:meta'] as object), servers: ['a', 'b'], replicas: 1 });

// An emptied store is believed record by record while it is filled: on another server, or in an earlier history, what is there may be old.
t.test('a store being filled counts only on servers that the registry names, and not in an earlier generation', (t) => {
  const filling = JSON.stringify({ ...(JSON.parse(named) as object), version: 2, filling: true, generation: 'r_2' });
  const judge = (servers: (string | null)[] | null, enrolledIn: string | null = null): boolean => {
    const state = new StoreState(() => undefined);
    t.equal(state.judge(filling, '7', servers, enrolledIn), null, 'it is not complete');
    return state.filling !== null;
  };
  t.ok(judge(['a']));
  t.ok(judge(['b', 'a'], 'r_1'));
  for (const servers of [['c'], ['a', 'c'], [null], null]) t.notOk(judge(servers), String(servers));
  t.notOk(judge(['a'], 'r_3'), 'an earlier history');
  const state = new StoreState();
  state.judge(filling, '7', ['a'], null);
  state.judge(named, '7', ['a'], null);
  t.equal(state.filling, null, 'it is complete');
  t.end();
});

// Redis was restarted on an old snapshot, and a gateway that started after that had nothing to compare it with: it let keys in that
// had been revoked, until the registry had written the changes again.
t.test('a server is trusted when the registry names it or the gateway knows that it is complete', (t) => {
  const state = new StoreState();
  t.match(state.judge(named, '7', ['a'], null), { replicas: 1 });
  t.match(state.judge(named, '7', ['b', 'a'], null), { replicas: 1 });
  for (const [servers, reason] of [
    [['c'], 'has not compared this Redis server with its database yet: c'],
    [['a', 'c'], 'yet: c'],
    [[null], /lacks the right \+info/],
  ] as const) {
    t.equal(state.judge(named, '7', servers, null), null);
    t.match(state.reason, reason);
    t.equal(state.judge(named, '7', servers, 'of another history'), null);
  }
  const { generation } = state.judge(named, '7', ['a'], null) ?? { generation: '' };
  ask(state, named, '7');
  t.match(state.judge(named, '7', ['c'], generation), { revision: 7 }, 'of a gateway that is enrolled in its history');
  t.match(state.notNamed, 'yet: c', 'which is worth a word');
  state.adopt(state.judge(named, '7', ['a'], null) ?? { generation: '', revision: 0, replicas: null });
  t.equal(state.judge(named, '6', ['a'], generation), null, 'but none that lacks something');
  t.equal(state.judge(named, '6', ['a'], null), null, 'also where the registry names it');
  const another = named.replace(generation, 'another');
  t.equal(state.judge(another, '1', ['c'], generation), null, 'nor one with another history');
  t.match(state.judge(another, '1', ['a'], generation), { generation: 'another', revision: 1 });
  t.end();
});

// A snapshot from before an upgrade of the registry: its meta record names no servers, so the rules of the former release held again,
// by which any server is believed, also one that lacks a revocation.
t.test('a store that no longer names its servers is unavailable until it names them again', (t) => {
  for (const generation of [(seededRecords['mg:meta'] as { generation: string }).generation, 'another']) {
    const state = new StoreState();
    const former = JSON.stringify({ ...(seededRecords['mg:meta'] as object), generation });
    t.ok(ask(state, former, '7'), 'of a registry of the former release');
    t.ok(state.isFormer);
    t.ok(ask(state, named, '8'), 'that was upgraded');
    t.notOk(state.isFormer);
    for (const revision of ['8', '7', '9']) {
      t.notOk(ask(state, former, revision), `revision ${revision} of generation ${generation}`);
      t.match(state.reason, 'names no servers, although this store had one that did');
      t.equal(state.judge(former, revision, ['a'], generation), null, 'also of a gateway that is enrolled in it');
    }
    t.notOk(state.isFormer, 'nor do the former rules hold');
    t.match(state.judge(named, '9', ['a'], null), { revision: 9, replicas: 1 });
    t.equal(state.reason, null);
  }
  t.end();
});
