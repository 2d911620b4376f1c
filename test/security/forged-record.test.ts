import { createHmac } from 'node:crypto';
import t from 'tap';
import { Seals } from '../../src/adapters/redis/seal.js';
import { until } from '../adapters/redis-cluster.js';
import { withoutRedis } from '../adapters/redis-server.js';
import { places, secrets, sealedDeployment } from './sealed-deployment.js';

const [secret, other] = secrets;
const change = (text: string | null, changes: object): string =>
  JSON.stringify({ ...(JSON.parse(text ?? '{}') as object), ...changes });

// Whoever could write to Redis made a key of his own work, or a revoked one work again: any record was believed.
for (const [where, open] of Object.entries(places)) {
  t.test(`on ${where} a record that the registry has not written opens nothing`, { skip: withoutRedis }, async (t) => {
    const { createKey, redis, startGateway, startRegistry } = await sealedDeployment(t, open);
    const registry = await startRegistry([secret]);
    const [good, another, revoked] = [await createKey(registry), await createKey(registry), await createKey(registry)];
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
    const active = change(unsealed, { status: 'ACTIVE' });
    const cases: [what: string, text: string, reason: string][] = [
      ['unsealed', active, 'unsealed'],
      ['with the seal that it had', change(texts.revoked, { status: 'ACTIVE' }), 'wrong_seal'],
      ['with a seal in the middle', change(change(active, { seal }), { more: 1 }), 'unsealed'],
      ['with the seal of another record', `${active.slice(0, -1)},"seal":"${seal}"}`, 'wrong_seal'],
      [
        'with a member behind what was sealed',
        texts.revoked.replace(',"seal"', ',"status":"ACTIVE","seal"'),
        'wrong_seal',
      ],
      ['with two seals', texts.revoked.replace(',"seal"', `,"seal":"${seal}","seal"`), 'wrong_seal'],
      ['sealed by another secret', sealedBy(other, active), 'wrong_seal'],
      ['sealed for another name', sealedBy(secret, active, good.name), 'wrong_seal'],
      ['copied from another key', texts.good, 'wrong_seal'],
      ['of an earlier generation', sealedBy(secret, change(active, { generation: 'r_0' })), 'earlier_generation'],
      ['of no generation', sealedBy(secret, change(active, { generation: undefined })), 'earlier_generation'],
      ['a seal without a digest', `${active.slice(0, -1)},"seal":""}`, 'unsealed'],
      ['a digest of the text alone', `${active.slice(0, -1)},"seal":"${digestOf(active)}"}`, 'wrong_seal'],
      ['no JSON', '{', 'unsealed'],
    ];
    for (const [what, text, reason] of cases) {
      await redis.set(revoked.name, text);
      await until(async () => (await gateway.ask(revoked.key)) === 'unavailable', `${what} is refused`);
      t.match(gateway.refused.at(-1), { name: revoked.name, reason }, what);
    }
    t.equal(gateway.refused.length, cases.length, 'each is told of once');
    await redis.set(revoked.name, texts.revoked);
    await until(
      async () => (await gateway.ask(revoked.key)) === 'REVOKED',
      'what the registry had written is believed',
    );

    const swapped = `mg:merchant:${another.merchantId}`;
    await redis.set(swapped, texts.merchant);
    t.equal(await gateway.ask(another.key), 'unavailable', "another merchant's record");
    t.match(gateway.refused.at(-1), { name: swapped, reason: 'wrong_seal' });
    await redis.set(another.name, change(texts.another, { merchantId: good.merchantId }));
    await until(
      async () => gateway.refused.at(-1)?.name === another.name || (await gateway.ask(another.key)) === '',
      'seen',
    );
    t.equal(await gateway.ask(another.key), 'unavailable', 'another merchant in the record of a key');
    t.equal(await gateway.ask(good.key), 'ACTIVE', 'nobody else is concerned');
    t.match(gateway.records.cacheFigures().refused, { earlier_generation: 2, malformed: 0 });
    t.ok(gateway.records.cacheFigures().refused.wrong_seal > 8);
  });
}

function digestOf(text: string): string {
  return createHmac('sha256', '').update(text).digest('base64url');
}

// A meta record names the servers to believe, and the history that records are of.
for (const [where, open] of Object.entries(places)) {
  t.test(
    `on ${where} a meta record that the registry has not written is believed by nobody`,
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
        ['of another database', new Seals([other]).seal('mg:meta', change(unsealed, { database: 'x' }))],
        ['of a later generation', change(meta, { generation: 'r_9' })],
        [
          'sealed before, of an earlier generation',
          new Seals([secret]).seal('mg:meta', change(unsealed, { generation: 'r_0' })),
        ],
        ['no meta record', '[]'],
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
          `${what}: the same history goes on`,
        );
        await until(async () => (await gateway.ask(good.key)) === 'ACTIVE', 'the gateway goes on');
      }
      t.equal(logged.filter((line) => line.includes('the meta record of the store is not what')).length, cases.length);
      t.notOk(logged.some((line) => line.includes('in a new generation')));

      await registry.close();
      for (const [what, text] of cases) {
        await redis.set('mg:meta', text);
        const started = await startGateway([secret], false);
        if (what.startsWith('sealed before')) {
          await until(() => Promise.resolve(started.reason() === null), 'one that has just started cannot know better');
          // In a Cluster each slot names its generation as well, and none names this one.
          t.equal(await started.ask(unread.key), where === 'a Cluster' ? 'unavailable' : 'ACTIVE');
          continue;
        }
        const isRefused = (): boolean =>
          (started.reason() ?? '').includes('the meta record of the store cannot be believed');
        await until(() => Promise.resolve(isRefused()), what);
        t.match(started.reason(), /a registry with the same keys\.recordSecretFile seals them all/);
        t.equal(await started.ask(unread.key), 'unavailable');
        await started.close();
      }
    },
  );
}

// An acknowledgement put a revocation in force of a gateway that had not heard of it.
t.test('an acknowledgement that its gateway has not written counts for nothing', { skip: withoutRedis }, async (t) => {
  const { createKey, redis, startGateway, startRegistry } = await sealedDeployment(t);
  const registry = await startRegistry([secret]);
  const { keyId } = await createKey(registry);
  const gateway = await startGateway([secret]);
  const name = `mg:gateway:${gateway.instanceId}`;
  const rows = () => registry.database.selectFrom('gateways').selectAll().execute();
  await until(async () => (await rows()).some(({ seals }) => seals === 1), 'the gateway is in the roster, and seals');
  const text = (await redis.get(name)) ?? '';
  t.match(text, /,"seal":"[A-Za-z0-9_-]{43}"\}$/);
  // The gateway hangs: what it acknowledges does not come any more.
  await gateway.close();
  await redis.set(name, text);

  const forge = (changes: object): string => change(text, { beat: 9_999, revision: 1_000_000, ...changes });
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

  const sealed = new Seals([secret]).seal(name, change(text, { beat: 9_999, revision: 1_000_000, seal: undefined }));
  await redis.set(name, sealed);
  t.match((await registry.call('POST', `/keys/${keyId}/revoke`)).data.propagation, { gateways: 1, confirmed: 1 });
});

t.test(
  'a gateway without the secret, or of an earlier release, acknowledges as before',
  { skip: withoutRedis },
  async (t) => {
    const { createKey, redis, startGateway, startRegistry } = await sealedDeployment(t);
    const registry = await startRegistry([secret]);
    const { key, keyId } = await createKey(registry);
    const gateway = await startGateway([]);
    await until(async () => (await gateway.ask(key)) === 'ACTIVE', 'it believes what is sealed');
    await until(async () => (await redis.exists(`mg:grant:${gateway.instanceId}`)) === 1, 'it is in the roster');
    t.match((await registry.call('POST', `/keys/${keyId}/revoke`)).data.propagation, { gateways: 1, confirmed: 1 });
    t.equal(await gateway.ask(key), 'REVOKED');
  },
);

// A grant lets a gateway use its memory: somebody else's would make it use what the registry does not wait for.
t.test('a grant that the registry has not written is none', { skip: withoutRedis }, async (t) => {
  const { createKey, redis, startGateway, startRegistry } = await sealedDeployment(t);
  const registry = await startRegistry([secret]);
  await createKey(registry);
  const meta = JSON.parse((await redis.get('mg:meta')) ?? '{}') as { generation: string };
  await registry.close();
  const gateway = await startGateway([secret]);
  const name = `mg:grant:${gateway.instanceId}`;
  await redis.set(name, JSON.stringify({ generation: meta.generation, beat: 1, lifetimeMilliseconds: 31_000 }));
  await until(() => Promise.resolve(gateway.refused.some((one) => one.name === name)), 'it is refused');
  t.match(gateway.refused, [{ name, reason: 'unsealed' }], 'and told of once');
});
