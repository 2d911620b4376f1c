import { once } from 'node:events';
import net from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { RecordCache } from '../../src/adapters/cache/record-cache.js';
import { RedisRecords } from '../../src/adapters/redis/gateway/redis-records.js';
import { lookupIdOf } from '../../src/gateway/api-key.js';
import { KeyStoreUnavailable } from '../../src/gateway/ports.js';
import { keyStatus } from '../adapters/key-status.js';
import { runIdOf, startRedis, withoutRedis } from '../adapters/redis-server.js';
import type { Teardown } from '../adapters/redis-server.js';
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
  const hearing = { fresh: true, sinceKnownTrue: 0, staleMilliseconds: 30_000, catchUp: () => Promise.resolve() };
  const reads: { answer: (value: Value) => void; fail: (error: Error) => void }[] = [];
  const read = () => new Promise<Value>((answer, fail) => reads.push({ answer, fail }));
  return { cache: new RecordCache<NonNullable<Value>>(limits, hearing, read), hearing, reads };
}

const ends: readonly [string, (read: ReturnType<typeof setUp>['reads'][number] | undefined) => void][] = [
  ['was answered', (read) => read?.answer({ status: 'ACTIVE' })],
  ['was answered that there is none', (read) => read?.answer(null)],
  ['failed', (read) => read?.fail(new KeyStoreUnavailable('away'))],
];

for (const [how, end] of ends) {
  t.test(`what was read before a notice is not held, though an older read ${how} meanwhile`, async (t) => {
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
  });
}

t.test('what arrives while nothing can be believed is not held until something can', async (t) => {
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
t.test('while changes are not heard, a request does not join the look-up of an earlier one', async (t) => {
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

t.test('a request joins no look-up that began before a revision was acknowledged', async (t) => {
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

t.test('a look-up is held although a revision was acknowledged meanwhile, unless the record changed', async (t) => {
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

t.test('a request that begins after a change asks a slow Redis itself', { skip: withoutRedis }, async (t) => {
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
