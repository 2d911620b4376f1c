import t from 'tap';
import { lookupIdOf } from '../../src/gateway/api-key.js';
import { until } from '../adapters/redis-cluster.js';
import { withoutRedis } from '../adapters/redis-server.js';
import { askAllTheWhile, places, secrets, sealedDeployment } from './sealed-deployment.js';
import type { SealedKey } from './sealed-deployment.js';

const [secret] = secrets;

// While a registry runs, what somebody else writes is there for a moment alone; in that moment it must open nothing either.
for (const [where, open] of Object.entries(places)) {
  t.test(`on ${where} a forged record is repaired, and opens nothing meanwhile`, { skip: withoutRedis }, async (t) => {
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
    /** A key that was revoked, its record, and the one from before. */
    const revoke = async () => {
      const key = await createKey(registry, good.merchantId);
      const before = await written(key, 'ACTIVE');
      t.equal(await gateway.ask(key.key), 'ACTIVE');
      await registry.call('POST', `/keys/${key.keyId}/revoke`);
      await until(async () => (await gateway.ask(key.key)) === 'REVOKED', 'the revocation is in force');
      return { ...key, before, text: await written(key, 'REVOKED') };
    };
    const own = `svc_live_${'x'.repeat(43)}`;
    const nobody = { key: own, name: `mg:key:${lookupIdOf(own, null)}`, text: null };
    const [byHand, copied, putBack] = [await revoke(), await revoke(), await revoke()];
    const unsealed = byHand.before.replace(/,"seal":"[^"]*"\}$/, '}');
    const cases: [what: string, at: { key: string; name: string; text: string | null }, forged: string][] = [
      ['written by hand', byHand, unsealed],
      ['with the former seal', byHand, byHand.text.replace('REVOKED', 'ACTIVE')],
      ['copied from another key', copied, goodText],
      ['of an older revision', putBack, putBack.before],
      ['of nobody, written by hand', nobody, unsealed],
      ['of nobody, copied', nobody, goodText],
    ];
    const { generation } = JSON.parse(goodText) as { generation: string };

    const untouched = askAllTheWhile(() => gateway.ask(good.key));
    for (const [what, { key, name, text }, forged] of cases) {
      const asking = askAllTheWhile(() => gateway.ask(key));
      await asking.more(5);
      await redis.set(name, forged);
      await until(async () => (await redis.get(name)) === text, `${what}: it is repaired`);
      const truth = text === null ? 'unknown' : 'REVOKED';
      await until(async () => (await gateway.ask(key)) === truth, `${what}: the gateway has the true record`);
      await asking.more(20);
      const said = await asking.stop();
      t.ok(said[truth], what);
      t.same(
        Object.keys(said).filter((one) => one !== truth && one !== 'unavailable'),
        [],
        `${what}: ${JSON.stringify(said)}`,
      );
    }
    t.same(Object.keys(await untouched.stop()), ['ACTIVE'], 'nobody else is concerned');
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
        `${putBack.keyId} ${putBack.name.slice(3)} older`,
        `none ${nobody.name.slice(3)} unknown`,
      ].toSorted(),
    );
    const metrics = await (await fetch(`${registry.url}/metrics`)).text();
    const count = (cause: string): number =>
      Number(new RegExp(`registry_records_repaired_total\\{cause="${cause}"\\} (\\d+)`).exec(metrics)?.[1]);
    t.same(
      { older: count('older'), forged: count('forged'), unknown: count('unknown') },
      { older: 3, forged: 1, unknown: 2 },
    );
  });
}
