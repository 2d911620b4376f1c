import { once } from 'node:events';
import net from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import type { CacheLimits } from '../../src/adapters/cache/record-cache.js';
import { connectAny, connectRedis } from '../../src/adapters/redis/connection.js';
import { RedisRecords } from '../../src/adapters/redis/gateway/redis-records.js';
import { lookupIdOf } from '../../src/gateway/api-key.js';
import { KeyStoreUnavailable, type KeyLookup } from '../../src/gateway/key-store.js';
import { RecordKeyStore } from '../../src/gateway/record-key-store.js';
import { keyStoreContract, seededKey, seededRecords } from './key-store-contract.js';
import { plainRedis, startRedis, until, withoutRedis } from './redis-server.js';
import type { RedisServer } from './redis-server.js';

const limits: CacheLimits = {
  maxEntries: 1000,
  maxAgeMilliseconds: 60_000,
  unknownMaxEntries: 1000,
  unknownMaxAgeMilliseconds: 60_000,
  maxStaleMilliseconds: 2_000,
};
const seededId = lookupIdOf(seededKey, null);
const keyName = `mg:key:${seededId}`;
const unknownId = lookupIdOf('svc_live_nobody', null);
const probeId = lookupIdOf('svc_live_probe', null);
/** The timeout of commands in tests whose Redis falls silent. Other tests use a longer one, for busy machines. */
const shortTimeout = 200;

interface Opened {
  readonly store: RecordKeyStore;
  readonly malformed: string[];
  readonly problems: string[];
}

/** A key store over a Redis, returned once it is ready; at once if `ready` is false. */
async function open(
  t: { teardown(handler: () => unknown): void },
  url: string,
  {
    ready = true,
    cache = limits,
    instanceId = 'gateway-1',
    username = null as string | null,
    password = null as string | null,
    sentinels = null as { host: string; port: number }[] | null,
    commandTimeoutMilliseconds = 10_000,
  } = {},
): Promise<Opened> {
  const malformed: string[] = [];
  const problems: string[] = [];
  const records = new RedisRecords({
    address: {
      url,
      sentinels,
      masterName: 'mymaster',
      cluster: null,
      username,
      password,
      ca: null,
      commandTimeoutMilliseconds,
    },
    prefix: 'mg:',
    cache,
    identity: { instanceId, environment: 'live', host: 'test', startedAt: '2026-01-01T00:00:00.000Z' },
    clock: { now: () => Date.now() },
    onMalformed: (storeKey, problem) => {
      malformed.push(storeKey);
      problems.push(`${storeKey}: ${problem}`);
    },
    onLost: () => undefined,
    onFound: () => undefined,
  });
  const store = new RecordKeyStore(records);
  t.teardown(() => store.close());
  // Records are cached only after the store is ready and Redis has begun to send it notices of changes.
  if (ready) await until(async () => (await ask(store, probeId)) === 'absent (cache)', 'ready');
  return { store, malformed, problems };
}

async function seed(server: RedisServer, records: Readonly<Record<string, unknown>> = seededRecords): Promise<void> {
  for (const [name, value] of Object.entries(records)) await server.client.set(name, JSON.stringify(value));
}

/** The status and the source of a key, e.g. `ACTIVE (cache)`; `could not ask` if the store is unavailable. */
async function ask(store: RecordKeyStore, lookupId = seededId): Promise<string> {
  try {
    const { credential, source }: KeyLookup = await store.find(lookupId);
    return credential === null ? `absent (${source})` : `${credential.keyStatus} (${source})`;
  } catch (error) {
    if (error instanceof KeyStoreUnavailable) return 'could not ask';
    throw error;
  }
}

function changed(part: object): string {
  return JSON.stringify({ ...(seededRecords[keyName] as object), ...part });
}

t.test('the Redis key store satisfies the key store contract', { skip: withoutRedis }, async (t) => {
  const server = await startRedis(t);
  keyStoreContract(t, async (records) => {
    await server.client.flushall();
    await seed(server, records);
    const opened = await open(t, server.url, { ready: false });
    await until(
      async () =>
        (await ask(opened.store, probeId)) !== 'could not ask' ||
        opened.store.unavailableReason()?.includes('meta record') === true,
      'a heartbeat has decided',
    );
    return { store: opened.store, close: () => opened.store.close() };
  });
});

t.test('records are cached until they change, by any client and any command', { skip: withoutRedis }, async (t) => {
  const server = await startRedis(t);
  await seed(server);
  const { store } = await open(t, server.url);
  t.equal(await ask(store), 'ACTIVE (store)');
  t.equal(await ask(store), 'ACTIVE (cache)');
  t.equal(await ask(store, unknownId), 'absent (store)');
  t.equal(await ask(store, unknownId), 'absent (cache)');

  const changes: [string, () => Promise<unknown>, string][] = [
    ['set', () => server.client.set(keyName, changed({ status: 'REVOKED' })), 'REVOKED'],
    ['rename', () => server.client.rename(keyName, 'mg:key:elsewhere'), 'absent'],
    ['set again', () => server.client.set(keyName, changed({})), 'ACTIVE'],
    ['expiry', () => server.client.pexpire(keyName, 20), 'absent'],
    ['set after expiry', () => server.client.set(keyName, changed({})), 'ACTIVE'],
    ['delete', () => server.client.del(keyName), 'absent'],
    [
      'a script',
      () => server.client.eval("return redis.call('SET', KEYS[1], ARGV[1])", 1, keyName, changed({})),
      'ACTIVE',
    ],
  ];
  for (const [name, change, expected] of changes) {
    await ask(store);
    await change();
    // A read can expire a key, which causes another notice. If this notice arrives during the read, the first result
    // with the new status is not cached.
    await until(async () => (await ask(store)) === `${expected} (cache)`, name);
  }
  const merchant = { ...(seededRecords['mg:merchant:m_1'] as object), status: 'SUSPENDED' };
  await server.client.set('mg:merchant:m_1', JSON.stringify(merchant));
  await until(
    async () => (await store.find(seededId)).credential?.merchantStatus === 'SUSPENDED',
    'the merchant has changed',
  );
  t.equal((await store.find(seededId)).credential?.merchantStatus, 'SUSPENDED');
});

t.test(
  'a flushed, new or foreign store decides nothing, and recovers without a restart',
  { skip: withoutRedis },
  async (t) => {
    const server = await startRedis(t);
    const { store } = await open(t, server.url, { ready: false });
    const isEmpty = () => store.unavailableReason()?.includes('has no meta record') === true;
    await until(isEmpty, 'no meta record');
    t.equal(await ask(store), 'could not ask', 'never an unknown key');
    await seed(server);
    await until(() => store.unavailableReason() === null, 'seeded');
    t.match(await ask(store), 'ACTIVE');

    await server.client.flushall();
    await until(async () => (await ask(store)) === 'could not ask', 'flushed');
    for (let count = 0; count < 20; count += 1) {
      t.equal(await ask(store, unknownId), 'could not ask');
      t.equal(await ask(store), 'could not ask');
    }
    const { 'mg:meta': meta, ...records } = seededRecords;
    await seed(server, records);
    t.equal(await ask(store), 'could not ask', 'not before the meta record marks the store as complete');
    await seed(server, { 'mg:meta': meta });
    await until(async () => (await ask(store)).startsWith('ACTIVE'), 'complete');

    await server.client.set('mg:meta', '{"version":2}');
    await until(async () => (await ask(store)) === 'could not ask', 'an unknown layout');
  },
);

t.test(
  'during a Redis outage cached records are served up to the stale limit, and no key is unknown',
  { skip: withoutRedis },
  async (t) => {
    const server = await startRedis(t);
    await seed(server);
    // A long limit: look-ups of unknown keys wait for a reconnection, and a busy machine prolongs this wait.
    const { store } = await open(t, server.url, { cache: { ...limits, maxStaleMilliseconds: 10_000 } });
    await ask(store);
    await ask(store, unknownId);
    await server.kill();
    await until(async () => (await ask(store)).endsWith('(stale)'), 'stale');
    t.equal(await ask(store), 'ACTIVE (stale)');
    t.equal(await ask(store, unknownId), 'could not ask', 'an unknown key is never reported from the cache');
    t.equal(await ask(store, lookupIdOf(`${seededKey}x`, null)), 'could not ask');
    const before = await store.find(seededId);
    t.ok(before.ageMilliseconds > 0);
    t.equal(store.unavailableReason(), null, 'the gateway is still ready');
    await until(async () => (await ask(store)) === 'could not ask', 'beyond the stale limit');
    t.match(store.unavailableReason(), 'does not reply');

    await server.restart();
    await until(() => store.unavailableReason()?.includes('has no meta record') === true, 'reconnected, and empty');
    t.equal(await ask(store), 'could not ask');
    await seed(server);
    await until(async () => (await ask(store)).startsWith('ACTIVE'), 'recovered without a restart');
    t.equal(await ask(store, unknownId), 'absent (store)');
  },
);

t.test(
  'no request fails when Redis restarts under a load that keeps this process busy',
  { skip: withoutRedis },
  async (t) => {
    const server = await startRedis(t, ['appendonly yes', 'appendfsync always']);
    const ids = Array.from({ length: 200 }, (_, index) => lookupIdOf(`svc_live_restart${index}`, null));
    const keys = ids.map((id) => [`mg:key:${id}`, seededRecords[keyName]] as const);
    await seed(server, { ...seededRecords, ...Object.fromEntries(keys) });
    const cache = { ...limits, maxStaleMilliseconds: 30_000 };
    const { store } = await open(t, server.url, { cache, commandTimeoutMilliseconds: shortTimeout });
    for (const id of ids) await store.find(id);
    const results = new Map<string, number>();
    const over = new AbortController();
    const load = ids.map(async (id) => {
      while (!over.signal.aborted) {
        const result = await ask(store, id);
        results.set(result, (results.get(result) ?? 0) + 1);
        await wait(5);
      }
    });
    const hogging = (async () => {
      while (!over.signal.aborted) {
        for (const end = performance.now() + shortTimeout + 50; performance.now() < end;) Math.random();
        await wait(5);
      }
    })();
    const count = (result: string): number => results.get(result) ?? 0;
    for (let restart = 0; restart < 2; restart += 1) {
      const [stale, held] = [count('ACTIVE (stale)'), count('ACTIVE (cache)')];
      await server.kill();
      await until(() => count('ACTIVE (stale)') > stale, 'served while Redis is away');
      await server.restart();
      await until(() => count('ACTIVE (cache)') > held + 5 * ids.length, 'cached again');
    }
    over.abort();
    await Promise.all([...load, hogging]);
    t.same(
      [...results.keys()].filter((result) => !result.startsWith('ACTIVE')),
      [],
    );
  },
);

/** Relays bytes between a store and its Redis, until it is frozen. */
async function startRelay(t: { teardown(handler: () => unknown): void }, port: number) {
  const pairs = new Set<[Socket, Socket]>();
  const tracking = new WeakSet<[Socket, Socket]>();
  const silenced = new WeakSet<[Socket, Socket]>();
  let frozen = false;
  let chunks = 0;
  const server = net.createServer((near) => {
    const far = net.connect(port, '127.0.0.1');
    const pair: [Socket, Socket] = [near, far];
    pairs.add(pair);
    for (const [from, to] of [pair, [far, near] as const]) {
      from.on('data', (chunk: Buffer) => {
        chunks += 1;
        if (chunk.includes('TRACKING')) tracking.add(pair);
        if (!frozen && !silenced.has(pair)) to.write(chunk);
      });
      from.on('error', () => undefined);
      from.on('close', () => {
        pairs.delete(pair);
        to.destroy();
      });
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const cut = (): void => {
    for (const pair of pairs) for (const socket of pair) socket.destroy();
  };
  t.teardown(() => {
    cut();
    server.close();
  });
  return {
    url: `redis://127.0.0.1:${(server.address() as AddressInfo).port}`,
    cut,
    /** The number of chunks that arrived so far from either side. */
    chunks: () => chunks,
    /** From now on all bytes are dropped, and the connections stay open. */
    freeze: () => (frozen = true),
    /** Like `freeze`, but only for the current connections of one kind: those for commands, or those for notices. */
    silence: (kind: 'command' | 'tracking') => {
      for (const pair of pairs) if (tracking.has(pair) === (kind === 'tracking')) silenced.add(pair);
    },
    thaw: () => {
      frozen = false;
      cut();
    },
  };
}

t.test(
  'a connection cut between a change and its notice is detected, and no old record is trusted afterwards',
  { skip: withoutRedis },
  async (t) => {
    const server = await startRedis(t);
    await seed(server);
    const relay = await startRelay(t, server.port);
    const cache = { ...limits, maxStaleMilliseconds: 10_000 };
    const { store } = await open(t, relay.url, { cache, commandTimeoutMilliseconds: shortTimeout });
    await ask(store);
    relay.cut();
    const merchant = { ...(seededRecords['mg:merchant:m_1'] as object), status: 'SUSPENDED' };
    await Promise.all([
      server.client.set(keyName, changed({ status: 'REVOKED' })),
      server.client.set('mg:merchant:m_1', JSON.stringify(merchant)),
    ]);
    await until(async () => (await ask(store)) === 'REVOKED (cache)', 'reconnected, with an empty cache');
    t.equal((await store.find(seededId)).credential?.merchantStatus, 'SUSPENDED', "the merchant's record too");

    relay.freeze();
    await server.client.set(keyName, changed({ status: 'INACTIVE' }));
    await until(async () => (await ask(store)) === 'REVOKED (stale)', 'a silent connection is detected');
    await until(async () => (await ask(store)) === 'could not ask', 'its records expire at the stale limit');
    relay.thaw();
    await until(async () => (await ask(store)).startsWith('INACTIVE'), 'recovered after the silence');
  },
);

for (const kind of ['command', 'tracking'] as const) {
  t.test(
    `a connection (${kind}) whose other end is gone without a FIN is detected and reopened`,
    { skip: withoutRedis },
    async (t) => {
      const server = await startRedis(t);
      await seed(server);
      const relay = await startRelay(t, server.port);
      const { store } = await open(t, relay.url, { commandTimeoutMilliseconds: shortTimeout });
      relay.silence(kind);
      await wait(limits.maxStaleMilliseconds);
      await server.client.set(keyName, changed({ status: 'REVOKED' }));
      await until(async () => (await ask(store)) === 'REVOKED (cache)', 'reads and notices work again');
    },
  );
}

t.test('a request does not wait for a connection that is known to be dead', { skip: withoutRedis }, async (t) => {
  const server = await startRedis(t);
  await seed(server);
  const relay = await startRelay(t, server.port);
  const { store } = await open(t, relay.url, { commandTimeoutMilliseconds: shortTimeout });
  await ask(store);
  relay.freeze();
  await until(async () => (await ask(store)) === 'could not ask', 'silence');
  const [before, began] = [relay.chunks(), performance.now()];
  const asked = await Promise.all(Array.from({ length: 1000 }, () => ask(store)));
  t.ok(asked.every((result) => result === 'could not ask'));
  // On a busy machine the look-ups take seconds. In each second the client may send two heartbeats, and handshakes on
  // new connections.
  const seconds = (performance.now() - began) / 1_000;
  const most = 2 * (1 + Math.floor(2 * seconds)) + 8 * Math.floor(seconds);
  t.ok(relay.chunks() - before <= most, 'only a heartbeat is sent on it');
});

t.test(
  'a gateway acknowledges a revision only after it has dropped the records changed before it',
  { skip: withoutRedis },
  async (t) => {
    const server = await startRedis(t);
    await seed(server);
    const { store } = await open(t, server.url);
    for (let revision = 1; revision <= 100; revision += 1) {
      await ask(store);
      await server.client.set(keyName, changed({ status: revision % 2 === 0 ? 'ACTIVE' : 'REVOKED' }));
      await server.client.set('mg:revision', String(revision));
      await until(async () => {
        const text = await server.client.get('mg:gateway:gateway-1');
        return text !== null && (JSON.parse(text) as { revision: number }).revision === revision;
      }, `revision ${revision}`);
      t.match(await ask(store), revision % 2 === 0 ? 'ACTIVE' : 'REVOKED');
    }
    t.match(JSON.parse((await server.client.get('mg:gateway:gateway-1')) ?? ''), {
      revision: 100,
      environment: 'live',
      host: 'test',
      startedAt: '2026-01-01T00:00:00.000Z',
    });
    const lifetime = await server.client.pttl('mg:gateway:gateway-1');
    t.ok(lifetime > limits.maxStaleMilliseconds && lifetime < 60_000, "it outlives the gateway's stale limit");
    await store.close();
    t.equal(
      await server.client.get('mg:gateway:gateway-1'),
      null,
      'the registry does not wait for a gateway that has stopped',
    );
  },
);

t.test('a store that has lost changes decides nothing until it has them again', { skip: withoutRedis }, async (t) => {
  const server = await startRedis(t);
  await seed(server);
  await server.client.set('mg:revision', '7');
  const { store } = await open(t, server.url);
  t.match(await ask(store), 'ACTIVE');
  await server.client.set('mg:revision', '6');
  const hasLost = () => (store.unavailableReason() ?? '').includes('has lost changes');
  await until(hasLost, 'a replica that was behind was promoted');
  t.equal(await ask(store), 'could not ask');
  await server.client.set('mg:revision', '8');
  await until(async () => (await ask(store)).startsWith('ACTIVE'), 'the registry has written them again');
  await server.client.set('mg:revision', String(2 ** 51));
  await until(async () => (await ask(store)) === 'could not ask', 'a revision beyond any registry is refused');
  await server.client.set('mg:revision', '8');
  await until(async () => (await ask(store)).startsWith('ACTIVE'), 'the correct revision is accepted after that');
  await server.client.set('mg:revision', '1');
  await seed(server, { 'mg:meta': { ...(seededRecords['mg:meta'] as object), generation: '02REBUILT' } });
  await until(async () => (await ask(store)).startsWith('ACTIVE'), 'a new generation restarts the revisions');
});

t.test(
  'a malformed record is reported once, and its key is never reported as unknown',
  { skip: withoutRedis },
  async (t) => {
    const server = await startRedis(t);
    await seed(server);
    const { store, malformed } = await open(t, server.url);
    for (const damaged of ['', 'null', '{', '[]', changed({ status: 7 }), changed({ permissions: ['**'] })]) {
      malformed.length = 0;
      await server.client.set(keyName, damaged);
      await until(async () => (await ask(store)) === 'could not ask', damaged);
      for (let count = 0; count < 5; count += 1) t.equal(await ask(store), 'could not ask');
      t.ok(malformed.length >= 1 && malformed.length <= 2, `reported, but not for each request: ${malformed.length}`);
    }
    await server.client.set(keyName, changed({}));
    await until(async () => (await ask(store)).startsWith('ACTIVE'), 'mended');
  },
);

t.test('a record of another Redis type is malformed, and not an outage', { skip: withoutRedis }, async (t) => {
  const server = await startRedis(t);
  await seed(server);
  const { store, malformed } = await open(t, server.url);
  const becomesList = (name: string) => server.client.multi().del(name).rpush(name, 'a').exec();
  for (const name of [keyName, 'mg:merchant:m_1']) {
    await becomesList(name);
    await until(async () => (await ask(store)) === 'could not ask', name);
    for (let count = 0; count < 5; count += 1) t.equal(await ask(store), 'could not ask');
    t.equal(malformed.filter((reported) => reported === name).length, 1, `${name} is reported once`);
    t.match(await ask(store, unknownId), 'absent', 'other keys are decided');
    await seed(server);
    await until(async () => (await ask(store)).startsWith('ACTIVE'), 'mended');
  }
  for (const [name, problem] of [
    ['mg:meta', 'the meta record of the store cannot be used: it is malformed'],
    ['mg:revision', 'the revision of the store (number of the newest change) is malformed'],
  ] as const) {
    await becomesList(name);
    await until(() => store.unavailableReason() === problem, problem);
    t.equal(await ask(store), 'could not ask', 'nothing is decided, not even from the cache');
    await server.client.del(name);
    await seed(server);
    await until(async () => (await ask(store)).startsWith('ACTIVE'), 'mended');
  }
});

t.test(
  'a merchant record that is missing, or belongs to another merchant, is reported, and not for each request',
  { skip: withoutRedis },
  async (t) => {
    const server = await startRedis(t);
    await seed(server);
    const { store, problems } = await open(t, server.url);
    await server.client.del('mg:merchant:m_1');
    await until(async () => (await ask(store)) === 'could not ask', 'missing');
    for (let count = 0; count < 5; count += 1) t.equal(await ask(store), 'could not ask');
    t.same(problems, ['mg:merchant:m_1: the merchant record is missing, although the record of a key refers to it']);
    await server.client.copy('mg:merchant:m_2', 'mg:merchant:m_1');
    await until(
      () => Promise.resolve(problems.length > 1 || ask(store).then(() => false)),
      'the record of another merchant',
    );
    for (let count = 0; count < 5; count += 1) t.equal(await ask(store), 'could not ask');
    t.same(problems.slice(1), ['mg:merchant:m_1: the record of merchant m_1 contains the id of another merchant']);
    t.equal(await ask(store, unknownId), 'absent (store)');
  },
);

t.test(
  'a thousand concurrent misses of one record read it once; unknown keys evict no known record',
  { skip: withoutRedis },
  async (t) => {
    const server = await startRedis(t);
    await seed(server);
    const { store } = await open(t, server.url, { cache: { ...limits, maxEntries: 10, unknownMaxEntries: 10 } });
    const began = performance.now();
    await server.client.config('RESETSTAT');
    await Promise.all(Array.from({ length: 1000 }, () => ask(store)));
    const stats = await server.client.info('commandstats');
    const gets = Number(/cmdstat_get:calls=(\d+)/.exec(stats)?.[1] ?? 0);
    const beats = 2 + Math.floor((performance.now() - began) / 500);
    t.ok(gets <= 2 + 3 * beats, `a key and its merchant, and at most ${beats} heartbeats: ${gets}`);
    // These look-ups are so few that they delay no heartbeat. If known and unknown keys shared one cache of ten
    // entries, these look-ups would still evict the known record.
    await Promise.all(Array.from({ length: 100 }, (_, index) => ask(store, lookupIdOf(`svc_live_${index}`, null))));
    t.equal(await ask(store), 'ACTIVE (cache)');
  },
);

t.test(
  'a user with an access control list needs no more than the documented rights',
  { skip: withoutRedis },
  async (t) => {
    const server = await startRedis(t);
    await seed(server);
    const rights = '+get +set +del +ping +info +subscribe +client|id +client|tracking +select';
    await server.client.call(
      'ACL',
      'SETUSER',
      'gateway',
      'on',
      '>secret',
      'resetchannels',
      '&__redis__:invalidate',
      '~mg:*',
      ...rights.split(' '),
    );
    const { store } = await open(t, server.url, { username: 'gateway', password: 'secret' });
    await ask(store);
    t.equal(await ask(store), 'ACTIVE (cache)');
    const wrong = await open(t, server.url, {
      username: 'gateway',
      password: 'wrong',
      ready: false,
      instanceId: 'gateway-2',
    });
    t.equal(await ask(wrong.store), 'could not ask');
  },
);

t.test('a user without +client|tracking is reconnected until it has the right', { skip: withoutRedis }, async (t) => {
  const server = await startRedis(t);
  await seed(server);
  const rights = 'on nopass ~mg:* &__redis__:invalidate +@all -client|tracking';
  await server.client.call('ACL', 'SETUSER', 'gateway', ...rights.split(' '));
  const { store } = await open(t, server.url, { username: 'gateway', password: 'any', ready: false });
  const opened = async () =>
    Number(/total_connections_received:(\d+)/.exec(await server.client.info('stats'))?.[1] ?? NaN);
  // The connection of this test, and those for commands and for notices.
  await until(async () => (await opened()) >= 3, 'connected');
  const [began, before] = [performance.now(), await opened()];
  await wait(2_500);
  const count = (await opened()) - before;
  const seconds = (performance.now() - began) / 1_000;
  t.ok(count <= 1 + seconds, `${count} connections in ${seconds} s`);
  await until(async () => (await opened()) > before, 'reconnected');
  await server.client.call('ACL', 'SETUSER', 'gateway', '+client|tracking');
  await until(async () => (await ask(store)) === 'ACTIVE (cache)', 'heard');
});

// Regression: ioredis ignores a refused SELECT, so the gateway read database 0. It sent 401 for the keys of its own
// database.
t.test('a user without +select reads no database but that of the URL', { skip: withoutRedis }, async (t) => {
  const server = await startRedis(t);
  await seed(server, { 'mg:meta': seededRecords['mg:meta'] }); // database 0 belongs to another deployment
  await server.client.select(3);
  await seed(server);
  const allow = (...rules: string[]) => server.client.call('ACL', 'SETUSER', 'gateway', ...rules);
  await allow('on', 'nopass', '~mg:*', '&__redis__:invalidate', '+@all');
  const { store } = await open(t, `${server.url}/3`, { username: 'gateway', password: 'any' });
  t.equal(await ask(store), 'ACTIVE (store)');
  await allow('-select');
  await server.client.call('CLIENT', 'KILL', 'USER', 'gateway');
  const results = new Set<string>();
  for (const end = Date.now() + limits.maxStaleMilliseconds + 1_000; Date.now() < end;) {
    for (const id of [seededId, unknownId]) results.add(await ask(store, id));
    await wait(20);
  }
  t.notOk(
    [...results].some((result) => result.startsWith('absent')),
    'no key is unknown',
  );
  await until(async () => (await ask(store)) === 'could not ask', 'the cached record is beyond the stale limit');
  await allow('+select');
  await until(async () => (await ask(store)) === 'ACTIVE (cache)', 'the right is back');
});

t.test('no connection uses another database than that of its URL', { skip: withoutRedis }, async (t) => {
  const server = await startRedis(t);
  const allow = (...rules: string[]) => server.client.call('ACL', 'SETUSER', 'gateway', ...rules);
  await allow('on', 'nopass', '~mg:*', '+@all');
  const address = { ...plainRedis(`${server.url}/3`), username: 'gateway', password: 'any' };
  for (const connect of [connectRedis, connectAny]) {
    await allow('-select');
    const problems: string[] = [];
    const redis = connect(address, ({ message }) => problems.push(message));
    t.teardown(() => {
      redis.disconnect();
    });
    const writes = () =>
      redis.set('mg:x', connect.name).then(
        () => true,
        () => false,
      );
    for (const end = Date.now() + 1_000; Date.now() < end;) {
      t.notOk(await writes());
      await wait(50);
    }
    const isReported = () => problems.some((problem) => problem.includes('NOPERM'));
    await until(isReported, 'the reason is reported');
    await allow('+select');
    await until(writes, 'the right is back');
    t.equal(await server.client.exists('mg:x'), 0, 'database 0 is untouched');
    await server.client.select(3);
    t.equal(await server.client.get('mg:x'), connect.name);
    await server.client.select(0);
  }
});

t.test("a hung sentinel does not delay another one's reply", { skip: withoutRedis }, async (t) => {
  const master = await startRedis(t);
  await seed(master);
  const sentinel = await startRedis(t, [`sentinel monitor mymaster 127.0.0.1 ${master.port} 1`], ['--sentinel']);
  const hangs = net.createServer((socket) => {
    socket.on('error', () => undefined);
    t.teardown(() => socket.destroy());
  });
  hangs.listen(0, '127.0.0.1');
  await once(hangs, 'listening');
  t.teardown(() => hangs.close());
  const ports = [(hangs.address() as AddressInfo).port, sentinel.port];
  const { store } = await open(t, 'redis://ignored:1', {
    sentinels: ports.map((port) => ({ host: '127.0.0.1', port })),
  });
  t.match(await ask(store), 'ACTIVE');
});

t.test('Sentinel names the master, and the next one after a failover', { skip: withoutRedis }, async (t) => {
  const master = await startRedis(t);
  const replica = await startRedis(t, [`replicaof 127.0.0.1 ${master.port}`]);
  const sentinel = await startRedis(
    t,
    [
      `sentinel monitor mymaster 127.0.0.1 ${master.port} 1`,
      'sentinel down-after-milliseconds mymaster 300',
      'sentinel failover-timeout mymaster 2000',
    ],
    ['--sentinel'],
  );
  await seed(master);
  await master.client.set('mg:revision', '3');
  await until(async () => (await replica.client.get('mg:revision')) === '3', 'replicated');
  const known = async () => (await sentinel.client.call('SENTINEL', 'REPLICAS', 'mymaster')) as unknown[];
  await until(async () => (await known()).length === 1, 'the sentinel knows the replica');

  const { store } = await open(t, 'redis://ignored:1', { sentinels: [{ host: '127.0.0.1', port: sentinel.port }] });
  t.equal(await ask(store), 'ACTIVE (store)');
  await master.kill();
  const seen = new Set<string>();
  await until(async () => {
    seen.add(await ask(store));
    return (await replica.client.role())[0] === 'master' && (await ask(store)).endsWith('(cache)');
  }, 'the replica serves');
  t.notOk(
    [...seen].some((result) => result.startsWith('absent')),
    'no key was unknown meanwhile',
  );
  await replica.client.set(keyName, changed({ status: 'REVOKED' }));
  await until(async () => (await ask(store)).startsWith('REVOKED'), "the new master's notices arrive");
});
