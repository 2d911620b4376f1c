import { createHmac } from 'node:crypto';
import { setTimeout as wait } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { messageText, replyText } from '../../src/adapters/redis/channel/message-text.js';
import { RedisChannel } from '../../src/adapters/redis/channel/redis-channel.js';
import { RedisInbox } from '../../src/adapters/redis/channel/redis-inbox.js';
import { RedisRecords } from '../../src/adapters/redis/gateway/redis-records.js';
import { Seals } from '../../src/adapters/redis/seal.js';
import { lookupIdOf } from '../../src/gateway/api-key.js';
import { RecordKeyStore } from '../../src/gateway/record-key-store.js';
import { until } from '../adapters/redis-cluster.js';
import { plainRedis, startRedis, withoutRedis } from '../adapters/redis-server.js';
import { ask, liveKey, recordsOf, startTestGateway, startUpstream } from '../edge/harness.js';
import { until as untilTrue } from '../telemetry/open-log.js';
import { askAllTheWhile, places, sealedDeployment, type SealedKey, secrets } from './sealed-deployment.js';

const [secret, other] = secrets;
const changed = (text: string | null, changes: object): string =>
  JSON.stringify({ ...(JSON.parse(text ?? '{}') as object), ...changes });

// Regression: any record in Redis was accepted. An attacker with write access could add a key of his own, or make a
// revoked one work again.
for (const [where, open] of Object.entries(places)) {
  t.test(
    `on ${where} a record that the registry did not write authenticates no request`,
    { skip: withoutRedis },
    async (t) => {
      const { createKey, redis, startGateway, startRegistry } = await sealedDeployment(t, open);
      const registry = await startRegistry([secret]);
      const [good, another, revoked] = [
        await createKey(registry),
        await createKey(registry),
        await createKey(registry),
      ];
      await registry.call('POST', `/keys/${revoked.keyId}/revoke`);
      const gateway = await startGateway([secret]);
      t.equal(await gateway.ask('svc_live_of-nobody'), 'unknown');
      await registry.close();
      t.equal(await gateway.ask(good.key), 'ACTIVE');
      t.equal(await gateway.ask(revoked.key), 'REVOKED');
      t.same(gateway.refused, []);

      const texts = {
        good: (await redis.get(good.name)) ?? '',
        another: (await redis.get(another.name)) ?? '',
        revoked: (await redis.get(revoked.name)) ?? '',
        merchant: (await redis.get(`mg:merchant:${good.merchantId}`)) ?? '',
      };
      t.match(texts.good, /,"seal":"[A-Za-z0-9_-]{43}"\}$/);
      const unsealed = texts.revoked.replace(/,"seal":"[^"]*"\}$/, '}');
      const seal = /"seal":"([^"]*)"/.exec(texts.good)?.[1] ?? '';
      const sealedBy = (key: Buffer, text: string, name = revoked.name): string => new Seals([key]).seal(name, text);
      const active = changed(unsealed, { status: 'ACTIVE' });
      const cases: [what: string, text: string, reason: string][] = [
        ['unsealed', active, 'unsealed'],
        ['with its former seal', changed(texts.revoked, { status: 'ACTIVE' }), 'wrong_seal'],
        ['with a seal in the middle', changed(changed(active, { seal }), { more: 1 }), 'unsealed'],
        ['with the seal of another record', `${active.slice(0, -1)},"seal":"${seal}"}`, 'wrong_seal'],
        [
          'with a member added after the sealed text',
          texts.revoked.replace(',"seal"', ',"status":"ACTIVE","seal"'),
          'wrong_seal',
        ],
        ['with two seals', texts.revoked.replace(',"seal"', `,"seal":"${seal}","seal"`), 'wrong_seal'],
        ['sealed by another secret', sealedBy(other, active), 'wrong_seal'],
        ['sealed for another name', sealedBy(secret, active, good.name), 'wrong_seal'],
        ['copied from another key', texts.good, 'wrong_seal'],
        ['an earlier generation', sealedBy(secret, changed(active, { generation: 'r_0' })), 'earlier_generation'],
        ['without a generation', sealedBy(secret, changed(active, { generation: undefined })), 'earlier_generation'],
        ['with an empty seal', `${active.slice(0, -1)},"seal":""}`, 'unsealed'],
        ['with a digest of the text as its seal', `${active.slice(0, -1)},"seal":"${digestOf(active)}"}`, 'wrong_seal'],
        ['not JSON', '{', 'unsealed'],
      ];
      for (const [index, [what, text, reason]] of cases.entries()) {
        await redis.set(revoked.name, text);
        // The first case made the key unavailable already, so only a report shows that the gateway has read this text.
        await until(
          async () => (await gateway.ask(revoked.key)) === 'unavailable' && gateway.refused.length > index,
          `a record ${what} is rejected`,
        );
        t.match(gateway.refused.at(-1), { name: revoked.name, reason }, what);
      }
      t.equal(gateway.refused.length, cases.length, 'each is reported once');
      await redis.set(revoked.name, texts.revoked);
      await until(async () => (await gateway.ask(revoked.key)) === 'REVOKED', 'the record of the registry is accepted');

      const swapped = `mg:merchant:${another.merchantId}`;
      await redis.set(swapped, texts.merchant);
      t.equal(await gateway.ask(another.key), 'unavailable', "another merchant's record");
      t.match(gateway.refused.at(-1), { name: swapped, reason: 'wrong_seal' });
      await redis.set(another.name, changed(texts.another, { merchantId: good.merchantId }));
      await until(
        async () => gateway.refused.at(-1)?.name === another.name || (await gateway.ask(another.key)) === '',
        'the gateway has read the forged record',
      );
      t.equal(await gateway.ask(another.key), 'unavailable', 'a key record that names another merchant');
      t.equal(await gateway.ask(good.key), 'ACTIVE', 'other keys are unaffected');
      t.match(gateway.records.recordStats().refused, { earlier_generation: 2, malformed: 0 });
      t.ok(gateway.records.recordStats().refused.wrong_seal > 8);
    },
  );
}

function digestOf(text: string): string {
  return createHmac('sha256', '').update(text).digest('base64url');
}

// The meta record names the generation to which records must belong, and the servers to trust.
for (const [where, open] of Object.entries(places)) {
  t.test(
    `on ${where} no gateway accepts a meta record that the registry did not write`,
    { skip: withoutRedis },
    async (t) => {
      const { createKey, logged, redis, startGateway, startRegistry } = await sealedDeployment(t, open);
      const registry = await startRegistry([secret]);
      const good = await createKey(registry);
      const unread = await createKey(registry, good.merchantId);
      const gateway = await startGateway([secret]);
      t.equal(await gateway.ask(good.key), 'ACTIVE');
      const meta = (await redis.get('mg:meta')) ?? '';
      const { generation } = JSON.parse(meta) as { generation: string };
      const unsealed = meta.replace(/,"seal":"[^"]*"\}$/, '}');
      const cases: [what: string, text: string][] = [
        ['unsealed', unsealed],
        ['of another database', new Seals([other]).seal('mg:meta', changed(unsealed, { database: 'x' }))],
        ['of a later generation', changed(meta, { generation: 'r_9' })],
        [
          'sealed before, an earlier generation',
          new Seals([secret]).seal('mg:meta', changed(unsealed, { generation: 'r_0' })),
        ],
        ['not a meta record', '[]'],
      ];
      for (const [what, text] of cases) {
        await redis.set('mg:meta', text);
        await until(
          async () =>
            ((await redis.get('mg:meta')) ?? '').includes(generation) && (await redis.get('mg:meta')) !== text,
          what,
        );
        t.match(
          await redis.get('mg:meta'),
          new RegExp(`"generation":"${generation}".*"seal"`),
          `${what}: the generation stays the same`,
        );
        await until(async () => (await gateway.ask(good.key)) === 'ACTIVE', 'the gateway still accepts the key');
      }
      t.equal(
        logged.filter((line) =>
          line.includes('a Redis client other than the registry changed mg:meta, the record that describes the store'),
        ).length,
        cases.length,
      );
      t.notOk(logged.some((line) => line.includes('rewriting all records of the store')));

      await registry.close();
      for (const [what, text] of cases) {
        await redis.set('mg:meta', text);
        const started = await startGateway([secret], false);
        if (what.startsWith('sealed before')) {
          await until(
            () => Promise.resolve(started.reason() === null),
            'a gateway that has just started cannot detect it',
          );
          // In a Cluster each slot also has a record of its generation. None has the generation of the forged record.
          t.equal(await started.ask(unread.key), where === 'a Cluster' ? 'unavailable' : 'ACTIVE');
          continue;
        }
        const isRefused = (): boolean =>
          (started.reason() ?? '').includes('the meta record of the store cannot be trusted');
        await until(() => Promise.resolve(isRefused()), what);
        t.match(started.reason(), /start the registry with the same keys\.recordSecretFile/);
        t.equal(await started.ask(unread.key), 'unavailable');
        await started.close();
      }
    },
  );
}

// Regression: a forged acknowledgement confirmed that a revocation was in force on a gateway that had not received it.
t.test('a forged acknowledgement of a gateway is ignored', { skip: withoutRedis }, async (t) => {
  const { createKey, redis, startGateway, startRegistry } = await sealedDeployment(t);
  let registry = await startRegistry([secret]);
  const { keyId } = await createKey(registry);
  const gateway = await startGateway([secret]);
  const name = `mg:gateway:${gateway.instanceId}`;
  const rows = () => registry.database.selectFrom('gateways').selectAll().execute();
  await until(
    async () => (await rows()).some(({ seals }) => seals === 1),
    'the gateway is in the roster, and seals its acknowledgements',
  );
  const text = (await redis.get(name)) ?? '';
  t.match(text, /,"seal":"[A-Za-z0-9_-]{43}"\}$/);
  // Makes the gateway seem to hang: it sends no more acknowledgements. The registry stops first, so that it does not
  // read the notice that a stopping gateway sends.
  await registry.close();
  await gateway.close();
  await redis.set(name, text);
  registry = await startRegistry([secret]);
  await until(async () => (await registry.store.gateways([])).isFresh, 'the registry reads acknowledgements');

  const forge = (changes: object): string => changed(text, { beat: 9_999, revision: 1_000_000, ...changes });
  for (const forged of [
    forge({}),
    forge({ seal: undefined }),
    forge({ leaving: true }),
    forge({ leaving: true, seal: undefined }),
  ]) {
    await redis.set(name, forged);
    const { data } = await registry.call('POST', `/keys/${keyId}/revoke`);
    t.match(data.propagation, { gateways: 1, confirmed: 0, pending: [{ instanceId: gateway.instanceId }] });
    t.equal((await rows()).length, 1, 'it stays in the roster');
  }
  t.match((await registry.call('GET', '/gateways')).data, [{ instanceId: gateway.instanceId, revision: null }]);

  const sealed = new Seals([secret]).seal(name, changed(text, { beat: 9_999, revision: 1_000_000, seal: undefined }));
  await redis.set(name, sealed);
  t.match((await registry.call('POST', `/keys/${keyId}/revoke`)).data.propagation, { gateways: 1, confirmed: 1 });
});

t.test(
  'a gateway without the secret, or of an earlier release, can still acknowledge revisions',
  { skip: withoutRedis },
  async (t) => {
    const { createKey, redis, startGateway, startRegistry } = await sealedDeployment(t);
    const registry = await startRegistry([secret]);
    const { key, keyId } = await createKey(registry);
    const gateway = await startGateway([]);
    await until(async () => (await gateway.ask(key)) === 'ACTIVE', 'it accepts sealed records');
    await until(async () => (await redis.exists(`mg:grant:${gateway.instanceId}`)) === 1, 'it is in the roster');
    t.match((await registry.call('POST', `/keys/${keyId}/revoke`)).data.propagation, { gateways: 1, confirmed: 1 });
    t.equal(await gateway.ask(key), 'REVOKED');
  },
);

// A grant lets a gateway use its cache. With a forged grant, a gateway would use its cache although the registry does
// not wait for its acknowledgements.
t.test('a forged grant is ignored', { skip: withoutRedis }, async (t) => {
  const { createKey, redis, startGateway, startRegistry } = await sealedDeployment(t);
  const registry = await startRegistry([secret]);
  await createKey(registry);
  const meta = JSON.parse((await redis.get('mg:meta')) ?? '{}') as { generation: string };
  await registry.close();
  const gateway = await startGateway([secret]);
  const name = `mg:grant:${gateway.instanceId}`;
  await redis.set(name, JSON.stringify({ generation: meta.generation, beat: 1, lifetimeMilliseconds: 31_000 }));
  await until(() => Promise.resolve(gateway.refused.some((one) => one.name === name)), 'the grant is rejected');
  t.match(gateway.refused, [{ name, reason: 'unsealed' }], 'and reported once');
});

// A running registry repairs a forged record within a moment. In that moment too, the record must not authenticate a request.
for (const [where, open] of Object.entries(places)) {
  t.test(
    `on ${where} a forged record is repaired, and authenticates no request until then`,
    { skip: withoutRedis },
    async (t) => {
      const { createKey, redis, startGateway, startRegistry } = await sealedDeployment(t, open);
      const registry = await startRegistry([secret]);
      const gateway = await startGateway([secret]);
      await until(async () => (await redis.exists(`mg:grant:${gateway.instanceId}`)) === 1, 'it is in the roster');
      const good = await createKey(registry);
      const written = async ({ name }: SealedKey, what: string): Promise<string> => {
        await until(async () => ((await redis.get(name)) ?? '').includes(what), `${name} is ${what}`);
        return (await redis.get(name)) ?? '';
      };
      const goodText = await written(good, 'ACTIVE');
      /** Revokes a new key. Returns the key with its record, and with the record from before the revocation. */
      const revoke = async () => {
        const key = await createKey(registry, good.merchantId);
        const before = await written(key, 'ACTIVE');
        t.equal(await gateway.ask(key.key), 'ACTIVE');
        await registry.call('POST', `/keys/${key.keyId}/revoke`);
        await until(async () => (await gateway.ask(key.key)) === 'REVOKED', 'the revocation is in force');
        return { ...key, before, text: await written(key, 'REVOKED') };
      };
      const own = `svc_live_${'x'.repeat(43)}`;
      const unknownKey = { key: own, name: `mg:key:${lookupIdOf(own, null)}`, text: null };
      const [byHand, copied, replayed] = [await revoke(), await revoke(), await revoke()];
      const unsealed = byHand.before.replace(/,"seal":"[^"]*"\}$/, '}');
      const cases: [what: string, at: { key: string; name: string; text: string | null }, forged: string][] = [
        ['written by hand', byHand, unsealed],
        ['with the former seal', byHand, byHand.text.replace('REVOKED', 'ACTIVE')],
        ['copied from another key', copied, goodText],
        ['of an older revision', replayed, replayed.before],
        ['of an unknown key, written by hand', unknownKey, unsealed],
        ['of an unknown key, copied', unknownKey, goodText],
      ];
      const { generation } = JSON.parse(goodText) as { generation: string };

      const untouched = askAllTheWhile(() => gateway.ask(good.key));
      for (const [what, { key, name, text }, forged] of cases) {
        const lookups = askAllTheWhile(() => gateway.ask(key));
        await lookups.more(5);
        await redis.set(name, forged);
        await until(async () => (await redis.get(name)) === text, `${what}: it is repaired`);
        const genuine = text === null ? 'unknown' : 'REVOKED';
        await until(async () => (await gateway.ask(key)) === genuine, `${what}: the gateway has the genuine record`);
        await lookups.more(20);
        const results = await lookups.stop();
        t.ok(results[genuine], what);
        t.same(
          Object.keys(results).filter((one) => one !== genuine && one !== 'unavailable'),
          [],
          `${what}: ${JSON.stringify(results)}`,
        );
      }
      t.same(Object.keys(await untouched.stop()), ['ACTIVE'], 'other keys are unaffected');
      t.equal((JSON.parse((await redis.get('mg:meta')) ?? '{}') as { generation: string }).generation, generation);

      const forgeries = async () =>
        (await registry.call('GET', '/events?action=record.forged')).data as unknown as {
          keyId: string | null;
          after: { record: string; cause: string };
        }[];
      await until(async () => (await forgeries()).length === 4, 'there is an event for each record');
      const causes = (await forgeries()).map(({ keyId, after }) => `${keyId ?? 'none'} ${after.record} ${after.cause}`);
      t.same(
        causes.toSorted(),
        [
          `${byHand.keyId} ${byHand.name.slice(3)} older`,
          `${copied.keyId} ${copied.name.slice(3)} older`,
          `${replayed.keyId} ${replayed.name.slice(3)} older`,
          `none ${unknownKey.name.slice(3)} unknown`,
        ].toSorted(),
      );
      const metrics = await (await fetch(`${registry.url}/metrics`)).text();
      const count = (cause: string): number =>
        Number(new RegExp(`registry_records_repaired_total\\{cause="${cause}"\\} (\\d+)`).exec(metrics)?.[1]);
      t.same(
        { older: count('older'), forged: count('forged'), unknown: count('unknown') },
        { older: 3, forged: 1, unknown: 2 },
      );
    },
  );
}

const [ownSeals, foreignSeals] = [new Seals([Buffer.alloc(32, 7)]), new Seals([Buffer.alloc(32, 8)])];
const stream = 'mg:messages';

async function openInbox(t: Test) {
  const redis = await startRedis(t);
  const [refused, taken, failed] = [[] as string[], [] as string[], [] as string[]];
  const inbox = new RedisInbox(plainRedis(redis.url), 'mg:', ownSeals, {
    onRefused: (why) => void refused.push(why),
    onFailure: (error) => void failed.push((error as Error).message),
    onLongReply: (kind) => void refused.push(kind),
  });
  t.teardown(() => inbox.close());
  inbox.serve({
    checkpoint: (body) => {
      taken.push(body);
      return Promise.resolve('taken');
    },
  });
  return { failed, inbox, redis, refused, taken };
}

t.test('a stream message without a valid seal is discarded', { skip: withoutRedis }, async (t) => {
  const { redis, refused, taken } = await openInbox(t);
  const message = { id: 'forged', kind: 'checkpoint', body: 'forged' };
  const genuine = messageText(ownSeals, stream, message);
  const attempts: string[][] = [
    ['message', JSON.stringify(message)],
    ['message', messageText(foreignSeals, stream, message)],
    ['message', messageText(ownSeals, 'mg:reply:1', message)],
    ['message', genuine.replace('"body":"forged"', '"body":"edited"')],
    ['message', messageText(ownSeals, stream, { ...message, kind: 'toString' })],
    ['message', messageText(ownSeals, stream, { ...message, id: '../key:1' })],
    ['message', ownSeals.seal(stream, '{"id":1,"kind":2,"body":3}')],
    ['message', ownSeals.seal(stream, JSON.stringify({ ...message, body: 'x'.repeat(200_000) }))],
    ['message', 'no JSON'],
    ['other', genuine],
  ];
  for (const fields of attempts) await redis.client.xadd(stream, '*', ...fields);
  await untilTrue(() => refused.length === attempts.length);
  t.same(taken, []);
  t.equal(await redis.client.xlen(stream), 0);
  await redis.client.xadd(stream, '*', 'message', genuine);
  await untilTrue(() => taken.length === 1);
  t.same(taken, ['forged'], 'a message with a valid seal is accepted');
});

t.test('a reply message without a valid seal is ignored', { skip: withoutRedis }, async (t) => {
  const redis = await startRedis(t);
  const channel = new RedisChannel(plainRedis(redis.url), 'mg:', ownSeals);
  t.teardown(() => channel.close());
  // Repeats the message, as a gateway does, while Redis is not connected yet, or after the wait for the reply has timed
  // out.
  const end = performance.now() + 60_000;
  const send = async (): Promise<string> => {
    try {
      return await channel.send({ kind: 'checkpoint', body: 'true' });
    } catch (error) {
      const isTransient = /does not reply|cannot exchange messages/.test(String(error));
      if (!isTransient || performance.now() > end) throw error;
      await wait(20);
      return send();
    }
  };
  const sent = send();
  const idInStream = async (): Promise<string> => {
    while (performance.now() < end) {
      const [entry] = await redis.client.xrange(stream, '-', '+');
      if (entry !== undefined) return (JSON.parse(entry[1][1] ?? '') as { id: string }).id;
      await wait(5);
    }
    throw new Error('never: the message is in the stream');
  };
  // The reply cannot arrive before the message is in the stream, so only a failure of `sent` can settle first.
  const name = `mg:reply:${await Promise.race([idInStream(), sent])}`;
  for (const forged of [
    JSON.stringify({ body: 'forged' }),
    replyText(foreignSeals, name, 'forged'),
    replyText(ownSeals, 'mg:reply:another', 'of another message'),
    replyText(ownSeals, name, 'edited').replace('edited', 'forged'),
  ]) {
    await redis.client.set(name, forged);
    await wait(300);
  }
  await redis.client.set(name, replyText(ownSeals, name, 'right'));
  t.equal(await sent, 'right');
});

t.test(
  'a wrong Redis type under the name of the stream is reported once, and the inbox recovers after its removal',
  { skip: withoutRedis },
  async (t) => {
    const { failed, inbox, redis } = await openInbox(t);
    await untilTrue(() => inbox.workingSince !== null);
    await redis.client.set(stream, 'x');
    await untilTrue(() => failed.length > 0);
    await wait(400);
    t.match(failed, [/WRONGTYPE/]);
    t.equal(failed.length, 1);
    t.equal(inbox.workingSince, null);
    await redis.client.del(stream);
    await untilTrue(() => inbox.workingSince !== null);
    await redis.client.set(stream, 'x');
    await untilTrue(() => failed.length > 1);
  },
);

/*
 * A bug in a registry, or a single write by hand, can leave a record in Redis that two parsers read differently. Such a
 * record must not decide about a key: it counts as an unavailable store.
 */

const keyName = `mg:key:${lookupIdOf(liveKey, null)}`;
const merchantName = 'mg:merchant:m_1';
const records = Object.fromEntries(
  Object.entries(recordsOf(liveKey)).map(([name, record]) => [name, JSON.stringify(record)]),
);

/** The text of a record, with one more member at its end. */
function withMember(name: string, member: string): string {
  return `${(records[name] ?? '').slice(0, -1)},${member}}`;
}

/**
 * Sends a request to a gateway on a Redis in which the texts of `damaged` replace records. Returns the response, the
 * number of forwarded requests, the malformed records, and the reason why the key store is unavailable.
 */
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
  while (/not been read yet|does not reply/.test(keyStore.unavailableReason() ?? '')) await wait(5);
  const response = await ask(gateway, { headers: [['x-api-key', liveKey]] });
  return { response, forwarded: upstream.seen.length, malformed, reason: keyStore.unavailableReason() };
}

t.test(
  'a key or merchant record with a duplicate member is 503, neither accepted nor 401',
  { skip: withoutRedis },
  async (t) => {
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
      const { response, forwarded, malformed } = await gatewayOn(t, { [name]: withMember(name, member) });
      t.equal(response.status, 503, member);
      t.ok(response.header('retry-after'));
      t.equal(forwarded, 0);
      t.same(malformed, [`${name}: the record has two fields with the same name`]);
    }
  },
);

t.test('a meta record with a duplicate member makes the store unavailable', { skip: withoutRedis }, async (t) => {
  const { response, reason } = await gatewayOn(t, { 'mg:meta': withMember('mg:meta', '"generation":"02OTHER"') });
  t.equal(response.status, 503);
  t.match(reason, /the meta record of the store cannot be used: it is malformed/);
});

t.test('unknown members of a record are ignored', { skip: withoutRedis }, async (t) => {
  const member = '"more":{"status":"REVOKED","deep":[[{"a":1.5}]]}';
  const damaged = [keyName, merchantName, 'mg:meta'].map((name) => [name, withMember(name, member)] as const);
  const { response, forwarded, malformed } = await gatewayOn(t, Object.fromEntries(damaged));
  t.equal(response.status, 200);
  t.equal(forwarded, 1);
  t.same(malformed, []);
});
