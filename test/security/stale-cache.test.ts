import { once } from 'node:events';
import net, { type AddressInfo, type Socket } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { Heartbeat } from '../../src/adapters/redis/gateway/heartbeat.js';
import { RedisRecords } from '../../src/adapters/redis/gateway/redis-records.js';
import { Outage } from '../../src/adapters/redis/outage.js';
import { RecordNames } from '../../src/adapters/redis/record-names.js';
import { lookupIdOf } from '../../src/gateway/api-key.js';
import { keyStatus } from '../adapters/key-status.js';
import { seededRecords } from '../adapters/key-store-contract.js';
import { startRedis, withoutRedis } from '../adapters/redis-server.js';
import { liveKey, recordsOf } from '../edge/harness.js';

// A gateway that believes what it holds for longer than it was known to be true lets a revoked key in; one that acknowledges
// a revision before it has heard of it makes the registry say that the revocation is done.

const start = 1_700_000_000_000;
const maxStaleMilliseconds = 30_000;

/** A heartbeat over a store that does what it is told, at moments that are given. */
function setUp(t: Test) {
  const time = { wall: start, monotonic: 5_000 };
  t.intercept(performance, 'now', { value: () => time.monotonic });
  const told: string[] = [];
  const store = {
    hearing: true,
    epoch: 1,
    meta: JSON.stringify(seededRecords['mg:meta']),
    revision: '7',
    onRead: (): Promise<void> => Promise.resolve(),
    onCatchUp: (): Promise<void> => Promise.resolve(),
    lifetime: 0,
  };
  const heartbeat = new Heartbeat({
    link: {
      get hearing() {
        return store.hearing;
      },
      get epoch() {
        return store.epoch;
      },
      policies: [],
      partLost: null,
      readState: async () => {
        await store.onRead();
        return [store.meta, store.revision];
      },
      catchUp: async () => {
        await store.onCatchUp();
        told.push('caught up');
      },
      servers: null,
      acknowledge: ({ name, text, lifetimeMilliseconds }) => {
        told.push(`${name} has ${(JSON.parse(text) as { revision: number }).revision}`);
        store.lifetime = lifetimeMilliseconds;
        return Promise.resolve(null);
      },
      write: () => Promise.resolve(),
      witness: () => 'none',
      confirm: () => Promise.resolve(true),
      remove: (name) => Promise.resolve(void told.push(`${name} has gone`)),
      read: () => Promise.resolve(null),
      close: () => undefined,
    },
    outage: new Outage({ onLost: () => undefined, onFound: () => undefined }),
    names: new RecordNames('mg:'),
    identity: { instanceId: 'g', environment: 'live', host: 'test', startedAt: '2026-01-01T00:00:00.000Z' },
    clock: { now: () => time.wall },
    maxStaleMilliseconds,
    onCaughtUp: (hasMissed) => told.push(hasMissed ? 'dropped' : 'closed'),
    ...{ onForget: () => undefined, onNotice: () => undefined, holds: () => true, inactive: () => [] },
  });
  t.teardown(() => heartbeat.close());
  const pass = (milliseconds: number): void => {
    time.wall += milliseconds;
    time.monotonic += milliseconds;
  };
  return { heartbeat, store, told, time, pass };
}

t.test('a revision is acknowledged only after all earlier invalidations were received', async (t) => {
  const { heartbeat, store, told } = setUp(t);
  await heartbeat.beat();
  t.same(told, ['caught up', 'dropped', 'mg:gateway:g has 7']);
  told.length = 0;
  store.revision = '8';
  store.onCatchUp = () => Promise.reject(new Error('the line is dead'));
  await heartbeat.beat();
  t.same(told, []);
});

t.test('an acknowledgement lasts longer than cached records may be served', async (t) => {
  const { heartbeat, store } = setUp(t);
  await heartbeat.beat();
  t.ok(store.lifetime > maxStaleMilliseconds);
});

t.test(
  'stale cache: the age of a record counts from before its query, by the clock that advanced further',
  async (t) => {
    const { heartbeat, store, time, pass } = setUp(t);
    t.equal(heartbeat.standing.sinceKnownTrue, Infinity);
    store.onRead = () => {
      pass(400);
      return Promise.resolve();
    };
    await heartbeat.beat();
    t.equal(heartbeat.standing.sinceKnownTrue, 400);
    t.ok(heartbeat.standing.fresh);
    pass(1_100);
    t.ok(heartbeat.standing.fresh);
    pass(1);
    t.notOk(heartbeat.standing.fresh, 'a process that was stopped');

    store.onRead = () => Promise.resolve();
    await heartbeat.beat();
    t.ok(heartbeat.standing.fresh);
    time.wall += 60_000;
    t.equal(heartbeat.standing.sinceKnownTrue, 60_000, 'a machine that slept, whose other clock did not go on');
    t.notOk(heartbeat.standing.fresh);
    time.wall -= 60_000;
    time.monotonic += 60_000;
    t.equal(heartbeat.standing.sinceKnownTrue, 60_000, 'a clock that was set back meanwhile');
    t.notOk(heartbeat.standing.fresh);
    time.wall -= 1;
    t.equal(heartbeat.standing.sinceKnownTrue, Infinity, 'and one that was set back to before');
    t.notOk(heartbeat.standing.fresh);
  },
);

t.test('records cached before a resubscription are dropped before a revision is acknowledged', async (t) => {
  const { heartbeat, store, told } = setUp(t);
  await heartbeat.beat();
  store.epoch += 1;
  t.notOk(heartbeat.standing.fresh, 'it is not believed until then');
  told.length = 0;
  store.onCatchUp = () => Promise.reject(new Error('away'));
  await heartbeat.beat();
  t.same(told, [], 'a beat that fails leaves it to be served as stale');
  store.onCatchUp = () => Promise.resolve();
  await heartbeat.beat();
  t.same(told, ['caught up', 'dropped', 'mg:gateway:g has 7']);
  t.ok(heartbeat.standing.fresh);
  told.length = 0;
  store.onCatchUp = () => Promise.resolve(void (store.epoch += 1));
  await heartbeat.beat();
  t.same(
    told,
    ['caught up'],
    'nothing is acknowledged where it began anew during the beat: another server may have been asked',
  );
  store.onCatchUp = () => Promise.resolve();
  await heartbeat.beat();
  t.same(told.slice(1), ['caught up', 'dropped', 'mg:gateway:g has 7']);
});

t.test(
  'stale cache: cached records are not fresh when the subscription was lost during the last heartbeat',
  async (t) => {
    const { heartbeat, store } = setUp(t);
    store.onCatchUp = () => Promise.resolve(void (store.epoch += 1));
    await heartbeat.beat();
    t.notOk(heartbeat.standing.fresh, 'listening began anew meanwhile');
    store.onCatchUp = () => Promise.resolve();
    await heartbeat.beat();
    t.ok(heartbeat.standing.fresh);
    store.hearing = false;
    t.notOk(heartbeat.standing.fresh, 'nothing can be heard now');
    store.hearing = true;
    heartbeat.doubt();
    t.notOk(heartbeat.standing.fresh, 'the store may be another one');
    await heartbeat.beat();
    t.ok(heartbeat.standing.fresh);
  },
);

t.test('while Redis does not respond, cached records are served up to the staleness limit and no longer', async (t) => {
  const { heartbeat, store, pass } = setUp(t);
  await heartbeat.beat();
  store.onRead = () => Promise.reject(new Error('away'));
  await heartbeat.beat();
  pass(maxStaleMilliseconds);
  t.equal(heartbeat.standing.reason, null);
  pass(1);
  t.equal(heartbeat.standing.reason, 'Redis does not answer');
});

t.test('a stopped gateway withdraws its acknowledgement and makes no further one', async (t) => {
  const { heartbeat, told } = setUp(t);
  await heartbeat.beat();
  told.length = 0;
  const last = heartbeat.beat();
  await heartbeat.close();
  await Promise.all([last, heartbeat.beat()]);
  t.same(
    told,
    ['caught up', 'closed', 'mg:gateway:g has 7', 'mg:gateway:g has gone'],
    'also where a beat was under way',
  );
});

const records = recordsOf(liveKey);
const lookupId = lookupIdOf(liveKey, null);
const keyName = `mg:key:${lookupId}`;
const limits = { maxEntries: 100, unknownMaxEntries: 100, unknownMaxAgeMilliseconds: 5_000 };

/** A name that leads to one server and, later, to another one, as a virtual address does: connections stay where they are. */
async function startName(t: { teardown(handler: () => unknown): void }, port: number) {
  let to = port;
  let isSilent = false;
  const open: { readonly socket: Socket; isListening: boolean }[] = [];
  const server = net.createServer((socket) => {
    const connection = { socket, isListening: false };
    const behind = net.connect(to, '127.0.0.1');
    open.push(connection);
    socket.on('data', (bytes: Buffer) => {
      connection.isListening ||= bytes.includes('TRACKING');
      const isLost = isSilent && bytes.includes('\r\nserver\r\n');
      if (isLost) isSilent = false;
      else behind.write(bytes);
    });
    behind.on('data', (bytes) => socket.write(bytes));
    for (const [one, other] of [
      [socket, behind],
      [behind, socket],
    ] as const) {
      // prettier-ignore
      one.on('error', () => undefined).on('close', () => other.destroy());
    }
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  t.teardown(() => {
    server.close();
    for (const { socket } of open) socket.destroy();
  });
  return {
    url: `redis://127.0.0.1:${(server.address() as AddressInfo).port}`,
    /** @param isDeaf whether the first question after that which server it is has no answer */
    move(port: number, isListening: boolean, isDeaf: boolean): void {
      to = port;
      isSilent = isDeaf;
      for (const one of open) if (one.isListening === isListening) one.socket.destroy();
    },
  };
}

// Records were read and changes acknowledged at the one server while notices were awaited from the other one: a key that was
// revoked was taken for as long as it was held, and the registry was told that the gateway knew.
t.test(
  'when one connection has moved to another Redis, a key revoked there is rejected at once',
  { skip: withoutRedis },
  async (t) => {
    for (const [isListening, isDeaf] of [
      [false, false],
      [true, false],
      [false, true],
      [true, true],
    ] as const) {
      // prettier-ignore
      const [before, behind] = [await startRedis(t), await startRedis(t)];
      for (const { client } of [before, behind]) {
        for (const [name, record] of Object.entries(records)) await client.set(name, JSON.stringify(record));
        await client.set('mg:revision', '1');
      }
      const name = await startName(t, Number(new URL(before.url).port));
      const opened = new RedisRecords({
        address: {
          ...{
            url: name.url,
            sentinels: null,
            masterName: '',
            cluster: null,
            username: null,
            password: null,
            ca: null,
          },
          commandTimeoutMilliseconds: 1_000,
        },
        prefix: 'mg:',
        cache: { ...limits, maxAgeMilliseconds: 60_000, maxStaleMilliseconds: 30_000 },
        identity: { instanceId: 'g', environment: 'live', host: 'test', startedAt: '2026-01-01T00:00:00.000Z' },
        clock: { now: () => Date.now() },
        ...{ onMalformed: () => undefined, onLost: () => undefined, onFound: () => undefined },
      });
      t.teardown(() => opened.close());
      const status = (): Promise<string> => keyStatus(opened, lookupId);
      const until = async (wanted: string): Promise<void> => {
        for (const end = Date.now() + 10_000; (await status()) !== wanted && Date.now() < end;) await wait(10);
        t.equal(await status(), wanted);
      };
      await until('ACTIVE (cache)');
      name.move(Number(new URL(behind.url).port), isListening, isDeaf);
      await wait(2_500);
      await until('ACTIVE (cache)');
      const revoked = { ...(records[keyName] as object), status: 'REVOKED', revision: 2 };
      await behind.client.set(keyName, JSON.stringify(revoked));
      await behind.client.set('mg:revision', '2');
      await wait(1_000);
      t.match(await status(), 'REVOKED');
      t.match(JSON.parse((await behind.client.get('mg:gateway:g')) ?? ''), { revision: 2 });
    }
  },
);
