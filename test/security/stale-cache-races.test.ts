import { once } from 'node:events';
import net, { type AddressInfo, type Socket } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { RecordCache } from '../../src/adapters/cache/record-cache.js';
import { AheadReader } from '../../src/adapters/redis/gateway/ahead-reader.js';
import { RedisRecords } from '../../src/adapters/redis/gateway/redis-records.js';
import { RecordNames } from '../../src/adapters/redis/record-names.js';
import { lookupIdOf } from '../../src/gateway/api-key.js';
import { KeyStoreUnavailable } from '../../src/gateway/ports.js';
import type { CompiledKey, CompiledMerchant } from '../../src/gateway/records.js';
import { keyStatus } from '../adapters/key-status.js';
import { runIdOf, startRedis, type Teardown, withoutRedis } from '../adapters/redis-server.js';
import { liveKey, recordsOf } from '../edge/harness.js';

// A key is changed twice while its record is being read. The end of the first read, well or not, must not make the second
// one be forgotten: the second notice would then find nothing to drop, and what was read before it, a key that is revoked
// by now, would be held and let in.

type Value = { readonly status: string } | null;

const limits = {
  ...{ maxEntries: 9, maxAgeMilliseconds: 60_000, unknownMaxEntries: 9, unknownMaxAgeMilliseconds: 60_000 },
  maxStaleMilliseconds: 30_000,
};

function setUp() {
  const hearing = { fresh: true, sinceKnownTrue: 0, staleMilliseconds: 30_000 };
  const freshness = { standing: hearing, catchUp: () => Promise.resolve() };
  const reads: { answer: (value: Value) => void; fail: (error: Error) => void }[] = [];
  const read = () => new Promise<Value>((answer, fail) => reads.push({ answer, fail }));
  return { cache: new RecordCache<NonNullable<Value>>(limits, freshness, read), hearing, reads };
}

const readEndings: readonly [string, (read: ReturnType<typeof setUp>['reads'][number] | undefined) => void][] = [
  ['was answered', (read) => read?.answer({ status: 'ACTIVE' })],
  ['was answered that there is none', (read) => read?.answer(null)],
  ['failed', (read) => read?.fail(new KeyStoreUnavailable('away'))],
];

for (const [how, end] of readEndings) {
  t.test(
    `stale cache: a read that began before an invalidation is not cached, although an older read ${how} meanwhile`,
    async (t) => {
      const { cache, reads } = setUp();
      const first = Promise.resolve(cache.get('key')).catch(() => null);
      cache.drop(['key']);
      const second = cache.get('key');
      end(reads[0]);
      await first;
      cache.drop(['key']);
      reads[1]?.answer({ status: 'ACTIVE' });
      t.match(await second, { record: { status: 'ACTIVE' } }, 'who asked before the change may see what was');
      const third = cache.get('key');
      t.equal(reads.length, 3, 'and nobody else');
      reads[2]?.answer({ status: 'REVOKED' });
      t.match(await third, { record: { status: 'REVOKED' }, source: 'store' });
      t.match(await cache.get('key'), { record: { status: 'REVOKED' }, source: 'cache' });
    },
  );
}

t.test('stale cache: a record that arrives while Redis is not trusted is not cached', async (t) => {
  const { cache, hearing, reads } = setUp();
  const first = cache.get('key');
  hearing.fresh = false; // no beat has come for a while, and no notice says so
  reads[0]?.answer({ status: 'ACTIVE' });
  t.match(await first, { record: { status: 'ACTIVE' }, source: 'store' });
  hearing.fresh = true;
  const second = cache.get('key');
  reads[1]?.answer({ status: 'REVOKED' });
  t.match(await second, { record: { status: 'REVOKED' }, source: 'store' });
});

// The gateway that does not hear of a change vanishes from the registry's list, and the change is called in force. A request that
// began after that got the reply to an earlier request, from before the change.
t.test('while invalidations are not received, a request does not join an earlier lookup', async (t) => {
  const { cache, hearing, reads } = setUp();
  const early = cache.get('key');
  hearing.fresh = false;
  const late = [Promise.resolve(cache.get('key')), Promise.resolve(cache.get('key'))];
  await new Promise(setImmediate);
  t.equal(reads.length, 3);
  reads[0]?.answer({ status: 'ACTIVE' });
  reads[1]?.answer({ status: 'REVOKED' });
  reads[2]?.answer({ status: 'REVOKED' });
  t.match(await early, { record: { status: 'ACTIVE' } });
  t.match(await Promise.all(late), [{ record: { status: 'REVOKED' } }, { record: { status: 'REVOKED' } }]);
});

t.test('a request does not join a lookup that began before a revision was acknowledged', async (t) => {
  const { cache, reads } = setUp();
  const early = cache.get('key');
  cache.closeLookUps();
  const late = cache.get('key');
  const joining = cache.get('key');
  t.equal(reads.length, 2, 'but one that began after that');
  reads[1]?.answer({ status: 'REVOKED' });
  t.match(await late, { record: { status: 'REVOKED' } });
  t.match(await joining, { record: { status: 'REVOKED' } });
  reads[0]?.answer({ status: 'ACTIVE' });
  t.match(await early, { record: { status: 'ACTIVE' } });
  t.match(await cache.get('key'), { record: { status: 'REVOKED' }, source: 'cache' }, 'the older reply is not held');
});

t.test('a lookup is cached although a revision was acknowledged meanwhile, unless the record changed', async (t) => {
  const { cache, reads } = setUp();
  for (const changes of [false, true]) {
    cache.drop(['key']);
    const asked = cache.get('key');
    cache.closeLookUps();
    if (changes) cache.drop(['key']);
    reads.pop()?.answer({ status: 'ACTIVE' });
    await asked;
    const next = cache.get('key');
    reads.pop()?.answer({ status: 'ACTIVE' });
    t.match(await next, { source: changes ? 'store' : 'cache' });
  }
});

/** Leads to a Redis, and keeps back replies from that to a look-up on. */
async function startRelay(t: Teardown, port: number, lookUp: string) {
  const sockets = new Set<Socket>();
  let onLookUp = (): void => undefined;
  let kept: (() => void)[] | null = [];
  const server = net.createServer((near) => {
    const far = net.connect(port, '127.0.0.1');
    for (const socket of [near, far]) sockets.add(socket.on('error', () => undefined));
    let isAsked = false;
    near.on('data', (chunk: Buffer) => {
      far.write(chunk);
      isAsked ||= chunk.includes(lookUp);
    });
    far.on('data', (chunk: Buffer) => {
      if (isAsked) onLookUp();
      if (isAsked && kept !== null) kept.push(() => near.write(chunk));
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
      for (const pass of kept ?? []) pass();
      kept = null;
    },
  };
}

t.test('a request that begins after a change queries a slow Redis itself', { skip: withoutRedis }, async (t) => {
  const server = await startRedis(t);
  const lookupId = lookupIdOf(liveKey, null);
  const seeded: Record<string, unknown> = recordsOf(liveKey);
  for (const [name, record] of Object.entries(seeded)) await server.client.set(name, JSON.stringify(record));
  // No registry has enrolled this gateway, so that it holds nothing.
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

// Records that nobody has asked for are read in the background. A key that is revoked while its record is on its way must not be
// held as it was, nor one that comes from a server that is no longer believed: nobody would notice until the next change.

const ids = ['a', 'b'].map((letter) => letter.repeat(64));
const [a = '', b = ''] = ids;

// The reader rests on timers that keep no process alive.
const alive = setInterval(() => undefined, 1_000);
t.teardown(() => {
  clearInterval(alive);
});

function setUpPreload() {
  const hearing = { fresh: true, sinceKnownTrue: 0, staleMilliseconds: 30_000 };
  const freshness = { standing: hearing, catchUp: () => Promise.resolve() };
  const standing = { fresh: true, proof: 1 as number | null };
  const keys = new RecordCache<CompiledKey>(limits, freshness, () => Promise.resolve(null));
  const merchants = new RecordCache<CompiledMerchant>(limits, freshness, () => Promise.resolve(null));
  const reads: { names: readonly string[]; answer: (texts: readonly (string | null | undefined)[]) => void }[] = [];
  const compile = (_id: string, text: string) => ({ merchantId: 'm_1', keyStatus: text, revision: 1 });
  const reader = new AheadReader({
    link: {
      names: () => {
        throw new Error('nobody looks at all of them');
      },
      readSome: (names) =>
        new Promise((answer) => {
          reads.push({ names, answer });
        }),
    },
    ...{ standing, names: new RecordNames(''), environment: 'live', keys, merchants, maxEntries: 9 },
    onSeen: () => undefined,
    compileKey: (name, text) => ({ ...compile(name, text), environment: 'live' }) as CompiledKey,
    compileMerchant: (id, text) => compile(id, text) as unknown as CompiledMerchant,
  });
  const asked = async (count: number): Promise<void> => {
    while (reads.length < count) await wait(1);
  };
  const statusOf = (id: string): string | undefined => (keys.peek(id) as CompiledKey | undefined)?.keyStatus;
  return { hearing, standing, keys, reads, reader, asked, statusOf };
}

t.test('stale cache: a preload read before a change and received after its invalidation is not cached', async (t) => {
  const { keys, reads, reader, asked, statusOf } = setUpPreload();
  const reading = reader.readKeys(ids);
  await asked(1);
  keys.drop([a]);
  reads[0]?.answer(['ACTIVE', 'ACTIVE']);
  await asked(2);
  reads[1]?.answer([null]);
  await reading;
  t.equal(statusOf(a), undefined);
  t.equal(statusOf(b), 'ACTIVE', 'but what was not changed');
  keys.drop([b]);
  t.equal(statusOf(b), undefined, 'until it is');
});

const invalidations: Readonly<Record<string, (of: ReturnType<typeof setUpPreload>) => void>> = {
  'everything was dropped': ({ keys }) => {
    keys.dropAll();
  },
  'nothing could be heard for a moment': ({ keys }) => {
    keys.becomeStale();
  },
  'no beat has come for a while': ({ hearing }) => {
    hearing.fresh = false;
  },
};

for (const [what, happens] of Object.entries(invalidations)) {
  t.test(`stale cache: no preload read is cached when ${what}`, async (t) => {
    const of = setUpPreload();
    const reading = of.reader.readKeys(ids);
    await of.asked(1);
    happens(of);
    of.reads[0]?.answer(['ACTIVE', 'ACTIVE']);
    await reading;
    t.same(ids.map(of.statusOf), [undefined, undefined]);
    t.equal(of.reader.waiting, 2, 'it is read again');
  });
}

t.test('records preloaded from a server that is no longer trusted are not cached, and are read again', async (t) => {
  for (const proof of [2, null]) {
    const { standing, reads, reader, asked, statusOf } = setUpPreload();
    const reading = reader.readKeys(ids);
    await asked(1);
    standing.proof = proof;
    reads[0]?.answer(['ACTIVE', 'ACTIVE']);
    await t.rejects(reading, /another server/);
    t.same(ids.map(statusOf), [undefined, undefined]);
    t.equal(reader.waiting, 2);
  }
});

t.test('a preload of a record whose state is unknown waits, e.g. in a slot that lacks a change', async (t) => {
  const { reads, reader, asked, statusOf } = setUpPreload();
  const reading = reader.readKeys(ids);
  await asked(1);
  reads[0]?.answer([undefined, null]);
  await reading;
  t.same(ids.map(statusOf), [undefined, undefined]);
  t.equal(reader.waiting, 1);
});

t.test('nothing is preloaded while invalidations are not received', async (t) => {
  for (const not of [{ fresh: false }, { proof: null }]) {
    const { standing, reads, reader, asked } = setUpPreload();
    Object.assign(standing, not);
    const reading = reader.readKeys([a]);
    await wait(250);
    t.equal(reads.length, 0);
    Object.assign(standing, { fresh: true, proof: 1 });
    await asked(1);
    reads[0]?.answer([null]);
    await reading;
  }
});

t.test('preloading neither replaces cached records nor changes their eviction order', async (t) => {
  const { keys, reads, reader, asked, statusOf } = setUpPreload();
  const first = reader.readKeys([a]);
  await asked(1);
  reads[0]?.answer(['REVOKED']);
  await asked(2);
  reads[1]?.answer([null]);
  await first;
  const ahead = keys.readAhead();
  t.ok(keys.holdAhead(ahead, a, { keyStatus: 'ACTIVE' } as CompiledKey));
  t.equal(statusOf(a), 'REVOKED');
  for (let count = 1; count < limits.maxEntries; count += 1)
    t.ok(keys.holdAhead(ahead, String(count), { keyStatus: 'ACTIVE' } as CompiledKey));
  t.notOk(keys.holdAhead(ahead, b, { keyStatus: 'ACTIVE' } as CompiledKey));
  t.ok(keys.holdAhead(ahead, a, { keyStatus: 'ACTIVE' } as CompiledKey), 'what is held needs no room');
  t.equal(statusOf(a), 'REVOKED');
  t.equal(keys.figures.known.evictions, 0);
});
