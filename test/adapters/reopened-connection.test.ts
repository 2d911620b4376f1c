import { setTimeout as wait } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { RedisRecords } from '../../src/adapters/redis/gateway/redis-records.js';
import { until } from '../registry/manual-time.js';
import { type Passage, Relay } from '../truth/relay.js';
import { seededRecords } from './key-store-contract.js';
import { startRedis, withoutRedis } from './redis-server.js';

const keyNames = Object.keys(seededRecords).filter((name) => name.startsWith('mg:key:'));

/** Records behind a relay that can cut its connections, with one record cached. */
async function openBehindRelay(t: Test, commandTimeoutMilliseconds = 5_000) {
  const server = await startRedis(t);
  for (const [name, value] of Object.entries(seededRecords)) await server.client.set(name, JSON.stringify(value));
  const relay = await Relay.open(t, () => server.port);
  const [held = '', other = ''] = keyNames.map((name) => name.slice('mg:key:'.length));
  const records = new RedisRecords({
    address: {
      ...{ url: `redis://127.0.0.1:${relay.port}`, sentinels: null, masterName: '', cluster: null },
      ...{ username: null, password: null, ca: null, commandTimeoutMilliseconds },
    },
    prefix: 'mg:',
    cache: {
      ...{ maxEntries: 10, maxAgeMilliseconds: 60_000, unknownMaxEntries: 10, unknownMaxAgeMilliseconds: 5_000 },
      maxStaleMilliseconds: 1_000,
    },
    identity: { instanceId: 'g', environment: 'live', host: 'test', startedAt: '2026-01-01T00:00:00.000Z' },
    clock: { now: () => Date.now() },
    ...{ onMalformed: () => undefined, onLost: () => undefined, onFound: () => undefined },
  });
  t.teardown(() => records.close());
  const ageOfHeld = async (): Promise<number> => {
    const { source, ageMilliseconds } = await records.key(held);
    return source === 'cache' ? ageMilliseconds : Infinity;
  };
  /** Waits until a heartbeat has just succeeded and the one record is cached; resolves with the heartbeat's start. */
  const beat = async (): Promise<number> => {
    let age = Infinity;
    await until(async () => (age = await ageOfHeld().catch(() => Infinity)) < 200);
    return performance.now() - age;
  };
  await beat();
  return { beat, relay, read: async () => (await records.key(other)).record };
}

interface Attempt {
  /** Milliseconds from the closing of the relay to the beginning of the look-up; default 0. */
  readonly before?: number;
  /** Called while the relay is closed. When its promise resolves, the relay opens again. */
  readonly act: () => Promise<unknown>;
  /**
   * If a look-up fails later than this many milliseconds after the last successful heartbeat, the failure is correct.
   * Default: a little less than 1.5 s.
   */
  readonly patience?: number;
}

/**
 * Looks a record up while the relay is closed in the way that `passage` names, and returns the record. On a busy
 * machine, the relay can open again so late that the look-up rightly fails. Then the attempt proves nothing and is
 * repeated.
 */
async function readWhile(
  { beat, relay, read }: Awaited<ReturnType<typeof openBehindRelay>>,
  passage: Passage,
  { before = 0, act, patience = 1_400 }: Attempt,
) {
  for (let attempt = 1; ; attempt += 1) {
    const mayFailAt = (await beat()) + patience;
    relay.set(passage);
    if (before > 0) await wait(before);
    const result = read();
    result.catch(() => undefined); // examined below
    await act();
    relay.set('open');
    try {
      return await result;
    } catch (error) {
      if (performance.now() < mayFailAt || attempt === 10) throw error;
    }
  }
}

t.test('a look-up on a connection that breaks is repeated on the next one', { skip: withoutRedis }, async (t) => {
  const opened = await openBehindRelay(t);
  const act = async (): Promise<void> => {
    await wait(20);
    opened.relay.set('cut');
  };
  t.match(await readWhile(opened, 'held', { act }), { environment: 'live' });
});

t.test('a look-up waits for a reconnection', { skip: withoutRedis }, async (t) => {
  const opened = await openBehindRelay(t);
  t.match(await readWhile(opened, 'cut', { act: () => wait(700) }), { environment: 'live' });
});

t.test('a look-up does not wait long if no connection can be opened', { skip: withoutRedis }, async (t) => {
  const { relay, read } = await openBehindRelay(t);
  relay.set('cut');
  await t.rejects(read(), { name: 'KeyStoreUnavailable' });
  const waits: number[] = [];
  for (let count = 0; count < 5; count += 1) {
    const begun = performance.now();
    await t.rejects(read(), { name: 'KeyStoreUnavailable' });
    waits.push(performance.now() - begun);
  }
  // A busy machine delays some of the look-ups.
  t.ok(Math.min(...waits) < 250, `later ones do not wait at all: ${waits.join(', ')}`);
});

const shortTimeout = 200;

t.test('a look-up that Redis leaves without a reply is repeated once', { skip: withoutRedis }, async (t) => {
  const opened = await openBehindRelay(t, shortTimeout);
  const result = readWhile(opened, 'held', { act: () => wait(shortTimeout + 100), patience: 2 * shortTimeout });
  t.match(await result, { environment: 'live' });
});

t.test(
  'a look-up waits while Redis does not reply, until the last good beat is old',
  { skip: withoutRedis },
  async (t) => {
    const opened = await openBehindRelay(t, shortTimeout);
    const { beat, relay, read } = opened;
    // After 800 ms, at least one heartbeat has failed.
    t.match(await readWhile(opened, 'held', { before: 800, act: () => wait(50) }), { environment: 'live' });

    // A busy machine can delay the result of one attempt.
    let waited = Infinity;
    for (let attempt = 0; attempt < 5 && waited >= shortTimeout; attempt += 1) {
      await beat();
      relay.set('held');
      await wait(2_000);
      const begun = performance.now();
      await t.rejects(read(), { name: 'KeyStoreUnavailable' });
      waited = performance.now() - begun;
      relay.set('open');
    }
    t.ok(waited < shortTimeout, `later ones do not wait at all: ${waited} ms`);
  },
);
