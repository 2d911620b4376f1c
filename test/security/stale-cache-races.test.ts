import { once } from 'node:events';
import net, { type AddressInfo, type Socket } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { RecordCache } from '../../src/adapters/cache/record-cache.js';
import { AheadReader } from '../../src/adapters/redis/gateway/ahead-reader.js';
import { RedisRecords } from '../../src/adapters/redis/gateway/redis-records.js';
import { RecordNames } from '../../src/adapters/redis/record-names.js';
import { lookupIdOf } from '../../src/gateway/api-key.js';
import { KeyStoreUnavailable } from '../../src/gateway/key-store.js';
import type { CompiledKey, CompiledMerchant } from '../../src/gateway/records.js';
import { keyStatus } from '../adapters/key-status.js';
import { runIdOf, startRedis, type Teardown, withoutRedis } from '../adapters/redis-server.js';
import { liveKey, recordsOf } from '../edge/harness.js';

// A key changes twice while its record is being read. The end of the first read, successful or not, must not remove the
// second read from the list of pending reads. Otherwise the second invalidation finds nothing to drop. The second read
// then caches the record from before the change, and a revoked key is accepted.

type Value = { readonly status: string } | null;

const limits = {
  ...{ maxEntries: 9, maxAgeMilliseconds: 60_000, unknownMaxEntries: 9, unknownMaxAgeMilliseconds: 60_000 },
  maxStaleMilliseconds: 30_000,
};

function setUp() {
  const freshState = { fresh: true, sinceKnownTrue: 0, staleMilliseconds: 30_000 };
  const freshness = { standing: freshState, catchUp: () => Promise.resolve() };
  const reads: { reply: (value: Value) => void; fail: (error: Error) => void }[] = [];
  const read = () => new Promise<Value>((reply, fail) => reads.push({ reply, fail }));
  return { cache: new RecordCache<NonNullable<Value>>(limits, freshness, read), freshState, reads };
}

const readEndings: readonly [string, (read: ReturnType<typeof setUp>['reads'][number] | undefined) => void][] = [
  ['returned a record', (read) => read?.reply({ status: 'ACTIVE' })],
  ['found no record', (read) => read?.reply(null)],
  ['failed', (read) => read?.fail(new KeyStoreUnavailable('away'))],
];

for (const [outcome, end] of readEndings) {
  t.test(
    `stale cache: a read that began before an invalidation is not cached, although an older read ${outcome} meanwhile`,
    async (t) => {
      const { cache, reads } = setUp();
      const first = Promise.resolve(cache.get('key')).catch(() => null);
      cache.drop(['key']);
      const second = cache.get('key');
      end(reads[0]);
      await first;
      cache.drop(['key']);
      reads[1]?.reply({ status: 'ACTIVE' });
      t.match(
        await second,
        { record: { status: 'ACTIVE' } },
        'a request from before the change may get the old record',
      );
      const third = cache.get('key');
      t.equal(reads.length, 3, 'a later request reads the record again');
      reads[2]?.reply({ status: 'REVOKED' });
      t.match(await third, { record: { status: 'REVOKED' }, source: 'store' });
      t.match(await cache.get('key'), { record: { status: 'REVOKED' }, source: 'cache' });
    },
  );
}

t.test('stale cache: a record that arrives while Redis is not trusted is not cached', async (t) => {
  const { cache, freshState, reads } = setUp();
  const first = cache.get('key');
  freshState.fresh = false; // a heartbeat is overdue, and no invalidation was received
  reads[0]?.reply({ status: 'ACTIVE' });
  t.match(await first, { record: { status: 'ACTIVE' }, source: 'store' });
  freshState.fresh = true;
  const second = cache.get('key');
  reads[1]?.reply({ status: 'REVOKED' });
  t.match(await second, { record: { status: 'REVOKED' }, source: 'store' });
});

// The registry stops waiting for a gateway that no longer receives invalidations, and reports a change as in force.
// Regression: a request that began after that joined an earlier lookup, and got its reply from before the change.
t.test('while invalidations are not received, a request does not join an earlier lookup', async (t) => {
  const { cache, freshState, reads } = setUp();
  const early = cache.get('key');
  freshState.fresh = false;
  const late = [Promise.resolve(cache.get('key')), Promise.resolve(cache.get('key'))];
  await new Promise(setImmediate);
  t.equal(reads.length, 3);
  reads[0]?.reply({ status: 'ACTIVE' });
  reads[1]?.reply({ status: 'REVOKED' });
  reads[2]?.reply({ status: 'REVOKED' });
  t.match(await early, { record: { status: 'ACTIVE' } });
  t.match(await Promise.all(late), [{ record: { status: 'REVOKED' } }, { record: { status: 'REVOKED' } }]);
});

t.test('a request does not join a lookup that began before a revision was acknowledged', async (t) => {
  const { cache, reads } = setUp();
  const early = cache.get('key');
  cache.closeLookUps();
  const late = cache.get('key');
  const joining = cache.get('key');
  t.equal(reads.length, 2, 'it joins a lookup that began after that');
  reads[1]?.reply({ status: 'REVOKED' });
  t.match(await late, { record: { status: 'REVOKED' } });
  t.match(await joining, { record: { status: 'REVOKED' } });
  reads[0]?.reply({ status: 'ACTIVE' });
  t.match(await early, { record: { status: 'ACTIVE' } });
  t.match(await cache.get('key'), { record: { status: 'REVOKED' }, source: 'cache' }, 'the older reply is not cached');
});

t.test('a lookup is cached although a revision was acknowledged meanwhile, unless the record changed', async (t) => {
  const { cache, reads } = setUp();
  for (const changes of [false, true]) {
    cache.drop(['key']);
    const lookup = cache.get('key');
    cache.closeLookUps();
    if (changes) cache.drop(['key']);
    reads.pop()?.reply({ status: 'ACTIVE' });
    await lookup;
    const next = cache.get('key');
    reads.pop()?.reply({ status: 'ACTIVE' });
    t.match(await next, { source: changes ? 'store' : 'cache' });
  }
});

/** A relay to a Redis. It delays the reply to a look-up, and all replies after it, until `release`. */
async function startRelay(t: Teardown, port: number, lookUp: string) {
  const sockets = new Set<Socket>();
  let onLookUp = (): void => undefined;
  let delayed: (() => void)[] | null = [];
  const server = net.createServer((near) => {
    const far = net.connect(port, '127.0.0.1');
    for (const socket of [near, far]) sockets.add(socket.on('error', () => undefined));
    let isLookedUp = false;
    near.on('data', (chunk: Buffer) => {
      far.write(chunk);
      isLookedUp ||= chunk.includes(lookUp);
    });
    far.on('data', (chunk: Buffer) => {
      if (isLookedUp) onLookUp();
      if (isLookedUp && delayed !== null) delayed.push(() => near.write(chunk));
      else near.write(chunk);
    });
    near.on('close', () => far.destroy());
    far.on('close', () => near.destroy());
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return {
    url: `redis://127.0.0.1:${(server.address() as AddressInfo).port}`,
    lookedUp: new Promise<void>((resolve) => (onLookUp = resolve)),
    release: () => {
      for (const deliver of delayed ?? []) deliver();
      delayed = null;
    },
  };
}

t.test('a request that begins after a change queries a slow Redis itself', { skip: withoutRedis }, async (t) => {
  const server = await startRedis(t);
  const lookupId = lookupIdOf(liveKey, null);
  const seeded: Record<string, unknown> = recordsOf(liveKey);
  for (const [name, record] of Object.entries(seeded)) await server.client.set(name, JSON.stringify(record));
  // No registry has enrolled this gateway, so it caches nothing.
  const meta = { ...(seeded['mg:meta'] as object), servers: [await runIdOf(server)], replicas: 0 };
  await server.client.set('mg:meta', JSON.stringify(meta));
  const name = `mg:key:${lookupId}`;
  const relay = await startRelay(t, server.port, name);
  const address = { sentinels: null, masterName: '', cluster: null, username: null, password: null, ca: null };
  const records = new RedisRecords({
    address: { ...address, url: relay.url, commandTimeoutMilliseconds: 5_000 },
    prefix: 'mg:',
    cache: limits,
    identity: { instanceId: 'g', environment: 'live', host: 'test', startedAt: '2026-01-01T00:00:00.000Z' },
    clock: { now: () => Date.now() },
    ...{ onMalformed: () => undefined, onLost: () => undefined, onFound: () => undefined },
  });
  t.teardown(() => records.close());
  const merchantId = 'm_nobody';
  for (;;) {
    const found = await Promise.resolve(records.merchant(merchantId)).catch((error: unknown) => error);
    if (!(found instanceof Error && /Redis|known/.test(found.message))) break;
    await wait(10);
  }

  const early = records.key(lookupId);
  await relay.lookedUp;
  await server.client.set(name, JSON.stringify({ ...(seeded[name] as object), status: 'REVOKED' }));
  const late = records.key(lookupId);
  await new Promise(setImmediate);
  relay.release();
  t.match(await early, { record: { keyStatus: 'ACTIVE' } });
  t.match(await late, { record: { keyStatus: 'REVOKED' } });
  t.equal(await keyStatus(records, lookupId), 'REVOKED (store)');
});

// Preload reads records in the background. If a key is revoked while its record is being read, the old record must not be
// cached. The same applies to a record from a server that is no longer trusted. A wrong record would stay until the next
// change.

const ids = ['a', 'b'].map((letter) => letter.repeat(64));
const [a = '', b = ''] = ids;

// The reader uses timers that do not keep the process alive.
const keepAlive = setInterval(() => undefined, 1_000);
t.teardown(() => {
  clearInterval(keepAlive);
});

function setUpPreload() {
  const freshState = { fresh: true, sinceKnownTrue: 0, staleMilliseconds: 30_000 };
  const freshness = { standing: freshState, catchUp: () => Promise.resolve() };
  const standing = { fresh: true, proof: 1 as number | null };
  const keys = new RecordCache<CompiledKey>(limits, freshness, () => Promise.resolve(null));
  const merchants = new RecordCache<CompiledMerchant>(limits, freshness, () => Promise.resolve(null));
  const reads: { names: readonly string[]; reply: (texts: readonly (string | null | undefined)[]) => void }[] = [];
  const compile = (_id: string, text: string) => ({ merchantId: 'm_1', keyStatus: text, revision: 1 });
  const reader = new AheadReader({
    link: {
      names: () => {
        throw new Error('not used in these tests');
      },
      readSome: (names) =>
        new Promise((reply) => {
          reads.push({ names, reply });
        }),
    },
    ...{ standing, names: new RecordNames(''), environment: 'live', keys, merchants, maxEntries: 9 },
    onSeen: () => undefined,
    compileKey: (name, text) => ({ ...compile(name, text), environment: 'live' }) as CompiledKey,
    compileMerchant: (id, text) => compile(id, text) as unknown as CompiledMerchant,
  });
  const readsBegun = async (count: number): Promise<void> => {
    while (reads.length < count) await wait(1);
  };
  const statusOf = (id: string): string | undefined => (keys.peek(id) as CompiledKey | undefined)?.keyStatus;
  return { freshState, standing, keys, reads, reader, readsBegun, statusOf };
}

t.test('stale cache: a preload read before a change and received after its invalidation is not cached', async (t) => {
  const { keys, reads, reader, readsBegun, statusOf } = setUpPreload();
  const reading = reader.readKeys(ids);
  await readsBegun(1);
  keys.drop([a]);
  reads[0]?.reply(['ACTIVE', 'ACTIVE']);
  await readsBegun(2);
  reads[1]?.reply([null]);
  await reading;
  t.equal(statusOf(a), undefined);
  t.equal(statusOf(b), 'ACTIVE', 'the unchanged record is cached');
  keys.drop([b]);
  t.equal(statusOf(b), undefined, 'it is dropped once it changes');
});

const invalidations: Readonly<Record<string, (setup: ReturnType<typeof setUpPreload>) => void>> = {
  'the whole cache was dropped': ({ keys }) => {
    keys.dropAll();
  },
  'the subscription was lost for a moment': ({ keys }) => {
    keys.becomeStale();
  },
  'a heartbeat is overdue': ({ freshState }) => {
    freshState.fresh = false;
  },
};

for (const [what, invalidate] of Object.entries(invalidations)) {
  t.test(`stale cache: no preload read is cached when ${what}`, async (t) => {
    const setup = setUpPreload();
    const reading = setup.reader.readKeys(ids);
    await setup.readsBegun(1);
    invalidate(setup);
    setup.reads[0]?.reply(['ACTIVE', 'ACTIVE']);
    await reading;
    t.same(ids.map(setup.statusOf), [undefined, undefined]);
    t.equal(setup.reader.waiting, 2, 'the records are read again');
  });
}

t.test('records preloaded from a server that is no longer trusted are not cached, and are read again', async (t) => {
  for (const proof of [2, null]) {
    const { standing, reads, reader, readsBegun, statusOf } = setUpPreload();
    const reading = reader.readKeys(ids);
    await readsBegun(1);
    standing.proof = proof;
    reads[0]?.reply(['ACTIVE', 'ACTIVE']);
    await t.rejects(reading, /another server/);
    t.same(ids.map(statusOf), [undefined, undefined]);
    t.equal(reader.waiting, 2);
  }
});

t.test('a preload of a record whose state is unknown waits, e.g. in a slot that lacks a change', async (t) => {
  const { reads, reader, readsBegun, statusOf } = setUpPreload();
  const reading = reader.readKeys(ids);
  await readsBegun(1);
  reads[0]?.reply([undefined, null]);
  await reading;
  t.same(ids.map(statusOf), [undefined, undefined]);
  t.equal(reader.waiting, 1);
});

t.test('nothing is preloaded while invalidations are not received', async (t) => {
  for (const disconnected of [{ fresh: false }, { proof: null }]) {
    const { standing, reads, reader, readsBegun } = setUpPreload();
    Object.assign(standing, disconnected);
    const reading = reader.readKeys([a]);
    await wait(250);
    t.equal(reads.length, 0);
    Object.assign(standing, { fresh: true, proof: 1 });
    await readsBegun(1);
    reads[0]?.reply([null]);
    await reading;
  }
});

t.test('preloading neither replaces cached records nor changes their eviction order', async (t) => {
  const { keys, reads, reader, readsBegun, statusOf } = setUpPreload();
  const first = reader.readKeys([a]);
  await readsBegun(1);
  reads[0]?.reply(['REVOKED']);
  await readsBegun(2);
  reads[1]?.reply([null]);
  await first;
  const ahead = keys.readAhead();
  t.ok(keys.holdAhead(ahead, a, { keyStatus: 'ACTIVE' } as CompiledKey));
  t.equal(statusOf(a), 'REVOKED');
  for (let count = 1; count < limits.maxEntries; count += 1)
    t.ok(keys.holdAhead(ahead, String(count), { keyStatus: 'ACTIVE' } as CompiledKey));
  t.notOk(keys.holdAhead(ahead, b, { keyStatus: 'ACTIVE' } as CompiledKey));
  t.ok(keys.holdAhead(ahead, a, { keyStatus: 'ACTIVE' } as CompiledKey), 'a cached record needs no further room');
  t.equal(statusOf(a), 'REVOKED');
  t.equal(keys.stats.known.evictions, 0);
});
