import { setTimeout as wait } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { RedisRecords } from '../../src/adapters/redis/gateway/redis-records.js';
import { Relay } from '../truth/relay.js';
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
  for (const end = Date.now() + 10_000; records.unavailableReason() !== null && Date.now() < end;) await wait(20);
  await records.key(held);
  return { relay, look: async () => (await records.key(other)).record };
}

t.test('a look-up on a connection that breaks is repeated on the next one', { skip: withoutRedis }, async (t) => {
  const { relay, look } = await openBehindRelay(t);
  relay.set('held');
  const looked = look();
  await wait(20);
  relay.set('cut');
  relay.set('open');
  t.match(await looked, { environment: 'live' });
});

t.test('a look-up waits for a reconnection', { skip: withoutRedis }, async (t) => {
  const { relay, look } = await openBehindRelay(t);
  relay.set('cut');
  const looked = look();
  await wait(700);
  relay.set('open');
  t.match(await looked, { environment: 'live' });
});

t.test('a look-up does not wait long if no connection can be opened', { skip: withoutRedis }, async (t) => {
  const { relay, look } = await openBehindRelay(t);
  relay.set('cut');
  await t.rejects(look(), { name: 'KeyStoreUnavailable' });
  const begun = performance.now();
  await t.rejects(look(), { name: 'KeyStoreUnavailable' });
  t.ok(performance.now() - begun < 250, 'later ones do not wait at all');
});

const shortTimeout = 200;

t.test('a look-up that Redis leaves without a reply is repeated once', { skip: withoutRedis }, async (t) => {
  const { relay, look } = await openBehindRelay(t, shortTimeout);
  relay.set('held');
  const looked = look();
  await wait(shortTimeout + 100);
  relay.set('open');
  t.match(await looked, { environment: 'live' });
});

t.test(
  'a look-up waits while Redis does not reply, until the last good beat is old',
  { skip: withoutRedis },
  async (t) => {
    const { relay, look } = await openBehindRelay(t, shortTimeout);
    relay.set('held');
    await wait(800); // at least one beat has failed
    const looked = look();
    await wait(50);
    relay.set('open');
    t.match(await looked, { environment: 'live' });

    relay.set('held');
    await wait(2_000);
    const begun = performance.now();
    await t.rejects(look(), { name: 'KeyStoreUnavailable' });
    t.ok(performance.now() - begun < shortTimeout, 'later ones do not wait at all');
    relay.set('open');
  },
);
