import { readFileSync } from 'node:fs';
import t from 'tap';
import { Seals } from '../../src/adapters/redis/seal.js';
import { until } from '../adapters/redis-cluster.js';
import { withoutRedis } from '../adapters/redis-server.js';
import { askAllTheWhile, places, sealedDeployment, secrets } from './sealed-deployment.js';

const [older, newer, foreign] = secrets;
const isSealedBy = (secret: Buffer, text: string | null): boolean =>
  new Seals([secret]).stateOf('mg:meta', text ?? '') === 'current';

for (const [where, open] of Object.entries(places)) {
  t.test(`on ${where} sealing is enabled and the secret is rotated under load`, { skip: withoutRedis }, async (t) => {
    const { createKey, logged, redis, startGateway, startRegistry } = await sealedDeployment(t, open);
    let registry = await startRegistry([]);
    const keys = [await createKey(registry)];
    for (let count = 1; count < 20; count += 1) keys.push(await createKey(registry, keys[0]?.merchantId));
    const [first] = keys;
    if (first === undefined) throw new Error('there is no key');
    let gateway = await startGateway([]);
    // Waits for the roster, the list of gateways that may cache records. If a starting registry finds a gateway that is
    // not on it, the registry waits until that gateway's cached records are stale.
    const isOnRoster = (instanceId: string) =>
      until(async () => {
        const gateways = await registry.database.selectFrom('gateways').select('instance_id').execute();
        return gateways.some((row) => row.instance_id === instanceId);
      }, 'the gateway is on the roster');
    await isOnRoster(gateway.instanceId);
    const { generation } = JSON.parse((await redis.get('mg:meta')) ?? '{}') as { generation: string };
    t.match(
      await redis.get(first.name),
      new RegExp(`"generation":"${generation}"\\}$`),
      'the record has its generation, and no seal',
    );
    let turn = 0;
    const lookups = askAllTheWhile(async () => gateway.ask(keys[(turn += 1) % keys.length]?.key ?? ''));

    const steps: [what: string, registry: Buffer[], gateway: Buffer[], sealing: Buffer][] = [
      ['the older one alone', [older], [older], older],
      ['both, the older one seals', [older, newer], [older, newer], older],
      ['both, the newer one seals', [newer, older], [newer, older], newer],
      ['the newer one alone', [newer], [newer], newer],
    ];
    for (const [what, registrySecrets, gatewaySecrets, sealing] of steps) {
      await registry.close();
      registry = await startRegistry(registrySecrets);
      const row = () => registry.database.selectFrom('revision').selectAll().executeTakeFirstOrThrow();
      const { ids } = new Seals([sealing]);
      await until(async () => (await row()).sealed_by === ids.join(), `${what}: every record is sealed`);
      t.ok(isSealedBy(sealing, await redis.get('mg:meta')), what);
      for (const { name } of keys) {
        t.equal(new Seals([sealing]).stateOf(name, (await redis.get(name)) ?? ''), 'current', `${what}: ${name}`);
      }
      const next = await startGateway(gatewaySecrets);
      await isOnRoster(next.instanceId);
      await lookups.more(50);
      const former = gateway;
      gateway = next;
      await lookups.more(50);
      await former.close();
      t.same(former.refused, [], what);
      // A change after this step is sealed as well, and takes effect.
      await registry.call('PATCH', `/merchants/${first.merchantId}`, { name: what });
      const isWritten = async () => (await redis.get(`mg:merchant:${first.merchantId}`))?.includes(`"name":"${what}"`);
      await until(async () => (await isWritten()) ?? false, 'written');
      t.equal(await gateway.ask(first.key), 'ACTIVE');
    }
    const results = await lookups.stop();
    t.same(Object.keys(results), ['ACTIVE'], `no lookup failed: ${JSON.stringify(results)}`);
    t.equal((JSON.parse((await redis.get('mg:meta')) ?? '{}') as { generation: string }).generation, generation);
    t.equal(
      logged.filter((line) => line.startsWith('every record is sealed:')).length,
      2,
      'once when sealing was enabled, and once when the secret was replaced',
    );
    t.notOk(logged.some((line) => line.includes('rewriting all records of the store')));
  });
}

t.test(
  'a gateway with the secret waits for a registry that seals records, and reports it',
  { skip: withoutRedis },
  async (t) => {
    const { createKey, startGateway, startRegistry } = await sealedDeployment(t);
    const withoutSecret = await startRegistry([]);
    const { key } = await createKey(withoutSecret);
    const gateway = await startGateway([older], false);
    await until(() => Promise.resolve((gateway.reason() ?? '').includes('is not sealed')), 'it reports why');
    t.equal(await gateway.ask(key), 'unavailable');
    t.match(gateway.refused, [{ name: 'mg:meta', reason: 'unsealed' }], 'reported once');
    await withoutSecret.close();
    await startRegistry([older]);
    await until(async () => (await gateway.ask(key)) === 'ACTIVE', 'it recovers by itself');
  },
);

// Every gateway with the secret would reject the records of a registry without it.
t.test('a registry without the secret does not write into a sealed store', { skip: withoutRedis }, async (t) => {
  const { createKey, logged, redis, startGateway, startRegistry } = await sealedDeployment(t);
  const sealing = await startRegistry([older]);
  const { key, merchantId, name } = await createKey(sealing);
  await sealing.close();
  const before = await redis.get(name);
  for (const [wrong, why] of [
    [[], 'this registry has no keys.recordSecretFile'],
    [[foreign], 'this registry has another secret'],
  ] as const) {
    logged.length = 0;
    const registry = await startRegistry(wrong);
    const response = await registry.call('PATCH', `/merchants/${merchantId}`, { name: why });
    t.match(response.data.propagation, { projected: false });
    await until(() => Promise.resolve(logged.some((line) => line.includes(why))), why);
    t.match(
      logged.find((line) => line.includes(why)),
      /set keys\.recordSecretFile to the secret of the gateways/,
    );
    await registry.close();
  }
  t.equal(await redis.get(name), before);
  t.notMatch(await redis.get(`mg:merchant:${merchantId}`), /this registry has/);

  const again = await startRegistry([older]);
  const gateway = await startGateway([older]);
  t.equal(await gateway.ask(key), 'ACTIVE');
  await until(
    async () => ((await redis.get(`mg:merchant:${merchantId}`)) ?? '').includes('another secret'),
    'the pending change is written',
  );
  await again.close();

  // The secret is lost: with a new one, every record is written again.
  await redis.del('mg:meta');
  const renewed = await startRegistry([foreign]);
  const gatewayWithNewSecret = await startGateway([foreign]);
  t.equal(await gatewayWithNewSecret.ask(key), 'ACTIVE');
  await renewed.close();
});

// A registry of an earlier release that takes over does not seal its records, and nothing reports this.
t.test('records that an earlier release wrote in between are sealed', { skip: withoutRedis }, async (t) => {
  const { createKey, redis, startGateway, startRegistry } = await sealedDeployment(t);
  const sealing = await startRegistry([older]);
  const { key, name } = await createKey(sealing);
  const { published_revision } = await sealing.database.selectFrom('revision').selectAll().executeTakeFirstOrThrow();
  // The earlier release writes the record without the members that it does not know. It also writes its own change, but
  // nothing about seals.
  const revision = published_revision + 1;
  await sealing.database
    .updateTable('revision')
    .set({ value: revision, published_revision: revision, published_change: 'of-the-earlier-release' })
    .execute();
  await sealing.close();
  const text = (await redis.get(name)) ?? '';
  await redis.set(name, text.replace(/,"generation".*$/, '}'));
  await redis.set('mg:change', `${revision}:of-the-earlier-release`);
  await redis.set('mg:revision', String(revision));
  await startRegistry([older]);
  const gateway = await startGateway([older]);
  await until(async () => (await gateway.ask(key)) === 'ACTIVE', 'the record is accepted again');
  t.equal(new Seals([older]).stateOf(name, (await redis.get(name)) ?? ''), 'current');
});

t.test('a forged record with a later revision is replaced by the next change', { skip: withoutRedis }, async (t) => {
  const { createKey, redis, startRegistry } = await sealedDeployment(t);
  const registry = await startRegistry([older]);
  const { keyId, name } = await createKey(registry);
  const forged = { ...(JSON.parse((await redis.get(name)) ?? '{}') as object), revision: 2 ** 40, status: 'ACTIVE' };
  await redis.set(name, JSON.stringify(forged));
  const { generation } = JSON.parse((await redis.get('mg:meta')) ?? '{}') as { generation: string };
  await registry.call('POST', `/keys/${keyId}/revoke`);
  await until(async () => ((await redis.get(name)) ?? '').includes('REVOKED'), 'the change is written');
  t.equal(new Seals([older]).stateOf(name, (await redis.get(name)) ?? ''), 'current');
  t.match(await redis.get('mg:meta'), new RegExp(generation), 'the generation stays the same');
});

t.test('the seal is computed as docs/records.md specifies', (t) => {
  const text = readFileSync('docs/records.md', 'utf8');
  const [, secret = '', name = '', record = '', seal = ''] =
    /secret='(.+)'\nname='(.+)'\ntext='(.+)'\n[^`]*```\n\n[^`]*`([A-Za-z0-9_-]{43})`/.exec(text) ?? [];
  t.equal(new Seals([Buffer.from(secret)]).seal(name, record), `${record.slice(0, -1)},"seal":"${seal}"}`);
  t.equal(new Seals([Buffer.from(secret)]).stateOf(name, `${record.slice(0, -1)},"seal":"${seal}"}`), 'current');
  t.end();
});
