import { setTimeout as wait } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { RedisRecords } from '../../src/adapters/redis/gateway/redis-records.js';
import { lookupIdOf } from '../../src/gateway/api-key.js';
import { RecordKeyStore } from '../../src/gateway/record-key-store.js';
import { startRedis, withoutRedis } from '../adapters/redis-server.js';
import { ask, liveKey, recordsOf, startTestGateway, startUpstream } from '../edge/harness.js';

/*
 * Who can write a record in Redis once, by a bug in a registry or by hand, can write one that two readers understand differently.
 * It must neither open nor refuse: it is a store that cannot be asked.
 */

const keyName = `mg:key:${lookupIdOf(liveKey, null)}`;
const merchantName = 'mg:merchant:m_1';
const records = Object.fromEntries(
  Object.entries(recordsOf(liveKey)).map(([name, record]) => [name, JSON.stringify(record)]),
);

/** A record with a member behind those that it has. */
function withMember(name: string, member: string): string {
  return `${(records[name] ?? '').slice(0, -1)},${member}}`;
}

/** A gateway on a Redis that has these texts in place of its records, once it has looked at them. */
async function gatewayOn(t: Test, damaged: Readonly<Record<string, string>>) {
  const redis = await startRedis(t);
  await redis.client.mset({ ...records, 'mg:revision': '1', ...damaged });
  const malformed: string[] = [];
  const address = { url: redis.url, sentinels: null, masterName: '', cluster: null, username: null };
  const store = new RedisRecords({
    address: { ...address, password: null, ca: null, commandTimeoutMilliseconds: 2_000 },
    prefix: 'mg:',
    cache: {
      ...{ maxEntries: 10, maxAgeMilliseconds: 60_000, unknownMaxEntries: 10, unknownMaxAgeMilliseconds: 60_000 },
      maxStaleMilliseconds: 2_000,
    },
    identity: { instanceId: 'gateway-1', environment: 'live', host: 'test', startedAt: '2026-01-01T00:00:00.000Z' },
    clock: { now: () => Date.now() },
    onMalformed: (storeKey, problem) => malformed.push(`${storeKey}: ${problem}`),
    ...{ onLost: () => undefined, onFound: () => undefined },
  });
  const keyStore = new RecordKeyStore(store);
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { keyStore, upstreamUrl: upstream.url });
  t.teardown(() => keyStore.close());
  while (/not known yet|does not answer/.test(keyStore.unavailableReason() ?? '')) await wait(5);
  const answer = await ask(gateway, { headers: [['x-api-key', liveKey]] });
  return { answer, forwarded: upstream.seen.length, malformed, reason: keyStore.unavailableReason() };
}

t.test('a key or merchant with a member twice opens nothing and is no wrong key', { skip: withoutRedis }, async (t) => {
  const rows: readonly [string, string][] = [
    [keyName, '"status":"ACTIVE"'],
    [keyName, '"status":"REVOKED"'],
    [keyName, '"st\\u0061tus":"ACTIVE"'],
    [keyName, '"permissions":["*"]'],
    [merchantName, '"ipAllowlist":null'],
    [merchantName, '"status":"SUSPENDED"'],
    [merchantName, '"more":{"a":1,"a":2}'],
  ];
  for (const [name, member] of rows) {
    const { answer, forwarded, malformed } = await gatewayOn(t, { [name]: withMember(name, member) });
    t.equal(answer.status, 503, member);
    t.ok(answer.header('retry-after'));
    t.equal(forwarded, 0);
    t.same(malformed, [`${name}: the record has a member more than once`]);
  }
});

t.test('a meta record with a member twice is that of no store', { skip: withoutRedis }, async (t) => {
  const { answer, reason } = await gatewayOn(t, { 'mg:meta': withMember('mg:meta', '"generation":"02OTHER"') });
  t.equal(answer.status, 503);
  t.match(reason, /the meta record of the store cannot be used/);
});

t.test('members that are not known are ignored', { skip: withoutRedis }, async (t) => {
  const member = '"more":{"status":"REVOKED","deep":[[{"a":1.5}]]}';
  const damaged = [keyName, merchantName, 'mg:meta'].map((name) => [name, withMember(name, member)] as const);
  const { answer, forwarded, malformed } = await gatewayOn(t, Object.fromEntries(damaged));
  t.equal(answer.status, 200);
  t.equal(forwarded, 1);
  t.same(malformed, []);
});
