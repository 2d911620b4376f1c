import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { withoutRedis } from '../adapters/redis-server.js';
import { openSite } from '../deployment/deployment.js';
import type { Part } from '../deployment/process.js';
import { liveKey, recordsOf } from '../edge/harness.js';

const records = recordsOf(liveKey);
const keyName = Object.keys(records).find((name) => name.startsWith('mg:key:')) ?? '';
const keyRecord = records[keyName] as object;

/** A gateway, and its name in the acknowledgements. */
interface Gateway extends Part {
  readonly instanceId: string;
  /** Sends a request on a keep-alive connection; resolves with the status. */
  ask(): Promise<number>;
  /** Like `ask`, but repeats the request while a busy machine keeps the gateway from reading Redis in time. */
  decide(): Promise<number>;
}

t.test('gateway processes share records and drop cached records together', { skip: withoutRedis }, async (t) => {
  const { redis, startGateway } = await openSite(t, {
    throttles: true,
    settings: {
      keyStore: { cache: { maxStaleSeconds: 3 } },
      // While one gateway is slow, the others reject the revoked key more often than the default throttle allows.
      throttle: { badKeys: 1_000_000, totalBadKeys: 10_000_000 },
    },
  });
  const write = async (values: Readonly<Record<string, unknown>>) => {
    for (const [name, value] of Object.entries(values)) await redis.client.set(name, JSON.stringify(value));
  };
  const acknowledgements = async (): Promise<Map<string, number>> => {
    const names = await redis.client.keys('mg:gateway:*');
    const texts = await Promise.all(names.map((name) => redis.client.get(name)));
    return new Map(
      texts.flatMap((text) => {
        if (text === null) return [];
        const { instanceId, revision } = JSON.parse(text) as { instanceId: string; revision: number };
        return [[instanceId, revision] as const];
      }),
    );
  };

  async function start(): Promise<Gateway> {
    const before = new Set((await acknowledgements()).keys());
    const gateway = await startGateway();
    let instanceId: string | undefined;
    while (instanceId === undefined) {
      instanceId = [...(await acknowledgements()).keys()].find((id) => !before.has(id));
      await wait(10);
    }
    return { ...gateway, instanceId, ask: () => gateway.ask(liveKey), decide: () => gateway.decide(liveKey) };
  }

  /**
   * Writes as a registry does: the record, then the revision. Waits until the given gateways have dropped the record.
   */
  let revision = 0;
  async function change(status: string, gateways: readonly Gateway[]): Promise<void> {
    revision += 1;
    await write({ [keyName]: { ...keyRecord, status, revision }, 'mg:revision': revision });
    for (;;) {
      const acknowledged = await acknowledgements();
      if (gateways.every(({ instanceId }) => (acknowledged.get(instanceId) ?? 0) >= revision)) return;
      await wait(1);
    }
  }

  await write(records);
  const gateways = [await start(), await start(), await start()];
  const [first] = gateways;
  if (first === undefined) throw new Error('there is no gateway');

  await t.test(
    'under load, no request that starts after the acknowledgement of a revocation is accepted',
    async (t) => {
      let running = true;
      const load = gateways.map(async (gateway) => {
        let accepted = 0;
        while (running) if ((await gateway.ask()) === 200) accepted += 1;
        return accepted;
      });
      const wrong: string[] = [];
      for (let count = 0; count < 60; count += 1) {
        await change('REVOKED', gateways);
        const statuses = await Promise.all(
          gateways.flatMap((gateway) => [gateway.decide(), gateway.decide(), gateway.decide()]),
        );
        if (statuses.some((status) => status !== 401)) wrong.push(`revocation ${count}: ${statuses.join(' ')}`);
        await change('ACTIVE', gateways);
        const again = await Promise.all(gateways.map((gateway) => gateway.decide()));
        if (again.some((status) => status !== 200)) wrong.push(`activation ${count}: ${again.join(' ')}`);
      }
      running = false;
      t.same(wrong, []);
      t.ok(
        (await Promise.all(load)).every((accepted) => accepted > 0),
        'every client had accepted requests during the load',
      );
    },
  );

  await t.test('a gateway resumed after SIGSTOP uses no cached record', async (t) => {
    const others = gateways.slice(1);
    for (const stoppedFor of [0, 700, 2_200]) {
      await change('ACTIVE', gateways);
      t.equal(await first.decide(), 200);
      first.child.kill('SIGSTOP');
      await change('REVOKED', others);
      t.ok(
        ((await acknowledgements()).get(first.instanceId) ?? 0) < revision,
        'the stopped gateway has not acknowledged the revocation',
      );
      const waiting = first.ask();
      await wait(stoppedFor);
      first.child.kill('SIGCONT');
      const early = await waiting;
      if (stoppedFor > 1_500) t.ok([401, 503].includes(early), `its first response is ${early}`);
      while (((await acknowledgements()).get(first.instanceId) ?? 0) < revision) await wait(5);
      t.equal(await first.decide(), 401, 'it rejects the key once it has acknowledged the revocation');
    }
    await change('ACTIVE', gateways);
  });

  await t.test('a Redis outage causes 503, never 401, and requests succeed after the outage', async (t) => {
    const seen = new Set<number>();
    const startOutage = async (): Promise<void> => {
      for (const gateway of gateways) t.equal(await gateway.decide(), 200);
      await redis.kill();
      const stale = new Set<Gateway>();
      while (stale.size < gateways.length) {
        for (const gateway of gateways) {
          const status = await gateway.ask();
          seen.add(status);
          if (status === 503) stale.add(gateway);
        }
        await wait(5);
      }
      for (let count = 0; count < 100; count += 1) for (const gateway of gateways) seen.add(await gateway.ask());
    };
    const endOutage = async (): Promise<void> => {
      await redis.restart();
      for (const gateway of gateways) t.equal(await gateway.ask(), 503, 'an empty store causes 503');
      // The restored `mg:meta` has its old generation, which changes only when a registry writes all records anew.
      // Within a generation, no record may go back to an earlier revision.
      await write({ ...records, [keyName]: { ...keyRecord, revision }, 'mg:revision': revision });
      for (const gateway of gateways) t.equal(await gateway.decide(), 200);
    };
    await startOutage();
    // If a busy machine pauses for three seconds, all records are stale before the first request.
    for (let outage = 1; outage < 3 && !seen.has(200); outage += 1) {
      await endOutage();
      await startOutage();
    }
    t.same([...seen].toSorted(), [200, 503], 'cached records are used until they are stale; then the response is 503');
    await endOutage();
  });

  await t.test('a gateway that stops is no longer waited for', async (t) => {
    t.same(await first.stop(), [0, null]);
    t.notOk((await acknowledgements()).has(first.instanceId));
  });
});
