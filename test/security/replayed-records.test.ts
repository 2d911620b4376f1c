import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import type { HostAndPort } from '../../src/adapters/redis/connection.js';
import { RedisRecords } from '../../src/adapters/redis/gateway/redis-records.js';
import { RevisionFloor } from '../../src/adapters/redis/gateway/revision-floor.js';
import { openRecordsStore } from '../../src/adapters/redis/registry/open-records-store.js';
import { lookupIdOf } from '../../src/gateway/api-key.js';
import { acknowledgementOf, startEnrolling } from '../adapters/enrolling.js';
import { keyStatus } from '../adapters/key-status.js';
import { seededKey, seededRecords } from '../adapters/key-store-contract.js';
import { allowStalls, startCluster, until } from '../adapters/redis-cluster.js';
import { startRedis, type Teardown, withoutRedis } from '../adapters/redis-server.js';

// An attacker with write access to Redis restores an earlier record of a revoked key, or deletes a record. Regression:
// the gateway accepted the revoked key again, or treated a valid key as unknown.

const lookupId = lookupIdOf(seededKey, null);
const keyName = `mg:key:${lookupId}`;
const recordOf = (name: string, over: object): string =>
  JSON.stringify({ ...(seededRecords[name] as object), ...over });

for (const preload of [true, false]) {
  t.test(
    `record replay: an earlier version of a record is not accepted (preload: ${preload})`,
    { skip: withoutRedis },
    async (t) => {
      const { client, hasRevision, problems, records, registry, reaches } = await start(t, preload);
      await reaches('ACTIVE');
      await client.set(keyName, recordOf(keyName, { status: 'REVOKED', revision: 9 }));
      await client.set('mg:revision', '9');
      await reaches('REVOKED (cache)');
      const old = recordOf(keyName, { revision: 5 });
      await hasRevision(9);

      for (const change of [() => client.set(keyName, old), () => client.del(keyName)]) {
        await change();
        await reaches('KeyStoreUnavailable');
        for (let count = 0; count < 20; count += 1) t.equal(await keyStatus(records, lookupId), 'KeyStoreUnavailable');
        t.equal(problems.splice(0).length, 1, 'the problem is reported once');
        await client.set(keyName, recordOf(keyName, { status: 'REVOKED', revision: 9 }));
        await reaches('REVOKED (cache)');
      }

      const merchant = 'mg:merchant:m_1';
      const merchantRevision = async () => (await records.merchant('m_1')).record?.revision;
      t.equal(await merchantRevision(), 1);
      await client.set(merchant, recordOf(merchant, { status: 'SUSPENDED', revision: 10 }));
      await client.set('mg:revision', '10');
      await untilTrue(async () => (await merchantRevision()) === 10);
      await hasRevision(10);
      await client.set(merchant, recordOf(merchant, { revision: 1 }));
      const failure = () => Promise.resolve(records.merchant('m_1')).then(() => '', String);
      await untilTrue(async () => (await failure()).includes('revision 10'));

      await client.set(keyName, old);
      await reaches('KeyStoreUnavailable');
      await registry.name({ generation: '01RESTORED' });
      await reaches('ACTIVE (cache)');
      t.equal(await merchantRevision(), 1, 'a record of a new generation does not count as older');
      await client.set(keyName, recordOf(keyName, { revision: 6 }));
      await untilTrue(async () => (await records.key(lookupId)).record?.revision === 6);
      await client.del(keyName);
      await reaches('KeyStoreUnavailable');
    },
  );
}

t.test('a forged high revision does not block the genuine record', { skip: withoutRedis }, async (t) => {
  const { client, reaches } = await start(t, true);
  await reaches('ACTIVE');
  const original = recordOf(keyName, { revision: 5 });
  await client.set(keyName, original);
  await reaches('ACTIVE');
  for (const revision of [6, 7, 8, 1_000, 2 ** 49]) {
    await client.set(keyName, recordOf(keyName, { status: 'FORGED', revision }));
    await reaches('FORGED');
    await client.set(keyName, original);
    await reaches('ACTIVE');
  }
});

t.test('each change raises the known minimum revision', (t) => {
  const floor = new RevisionFloor(10);
  const last = { generation: 'g', revision: 100, replicas: 0 };
  const highest = (): number => {
    for (let revision = 200; revision > 0; revision -= 1) {
      try {
        floor.check('key', { revision: revision - 1 }, 'g');
      } catch {
        return revision;
      }
    }
    return 0;
  };
  floor.raise('key', undefined, last);
  floor.raise('key', new Error('damaged'), last);
  floor.raise('key', { revision: 3 }, null);
  floor.raise('key', { revision: 101 }, last);
  t.equal(highest(), 0);
  t.doesNotThrow(() => {
    floor.check('key', null, 'g');
  }, 'a record that was never cached may be missing');
  floor.raise('key', { revision: 9 }, last);
  t.equal(highest(), 9);
  floor.raise('key', { revision: 100 }, last);
  t.equal(highest(), 9, 'a change after revision 100 has a higher revision');
  floor.raise('key', { revision: 101 }, { ...last, revision: 101 });
  t.equal(highest(), 101);
  t.throws(() => {
    floor.check('key', null, 'g');
  }, /the record is missing/);
  t.doesNotThrow(() => {
    floor.check('key', null, 'another');
  });
  floor.raise('other', { revision: 1 }, { ...last, generation: 'another' });
  t.equal(highest(), 0, 'a new generation resets the minimum');
  t.end();
});

async function start(t: Teardown, preload: boolean) {
  const server = await startRedis(t);
  const { client } = server;
  for (const [name, value] of Object.entries(seededRecords)) await client.set(name, JSON.stringify(value));
  await client.set('mg:revision', '8');
  const registry = startEnrolling(t, server, 'g');
  await registry.name();
  const problems: string[] = [];
  const address = { sentinels: null, masterName: '', cluster: null, username: null, password: null, ca: null };
  const records = new RedisRecords({
    address: { ...address, url: server.url, commandTimeoutMilliseconds: 500 },
    prefix: 'mg:',
    cache: {
      ...{ maxEntries: 10, maxAgeMilliseconds: 60_000, unknownMaxEntries: 10, unknownMaxAgeMilliseconds: 60_000 },
      maxStaleMilliseconds: 30_000,
    },
    identity: { instanceId: 'g', environment: 'live', host: 'test', startedAt: '2026-01-01T00:00:00.000Z' },
    clock: { now: () => Date.now() },
    onMalformed: (name, problem) => problems.push(`${name}: ${problem}`),
    ...{ onLost: () => undefined, onFound: () => undefined },
    preload: preload ? { onFull: () => undefined, onRefused: () => undefined } : undefined,
  });
  t.teardown(() => records.close());
  await untilTrue(async () => (await keyStatus(records, lookupId)) === 'ACTIVE (cache)');
  const reaches = (status: string) => untilTrue(async () => (await keyStatus(records, lookupId)).startsWith(status));
  /** Resolves at the heartbeat after the one that acknowledged this revision. The gateway then uses the revision. */
  const hasRevision = async (revision: number): Promise<void> => {
    let first: number | null = null;
    await untilTrue(async () => {
      const seen = await acknowledgementOf(server, 'g');
      if (seen?.revision !== revision || seen.beat === undefined) return false;
      first ??= seen.beat;
      return seen.beat > first;
    });
  };
  return { client, hasRevision, problems, records, registry, reaches };
}

async function untilTrue(holds: () => Promise<boolean>): Promise<void> {
  for (const end = Date.now() + 60_000; !(await holds().catch(() => false));) {
    if (Date.now() > end) throw new Error(`never: ${holds.toString()}`);
    await wait(10);
  }
}

const name = 'mg:key:1';
const credentials = { sentinels: null, masterName: '', username: null, password: null, ca: null };

/** A Redis to which a registry writes, with access to the record under test. */
interface Place {
  readonly url: string;
  readonly cluster: readonly HostAndPort[] | null;
  readonly read: () => Promise<string | null>;
  readonly damage: (text: string) => Promise<unknown>;
  readonly makeHash: () => Promise<unknown>;
}

const places: Record<string, (t: Teardown) => Promise<Place>> = {
  'one server': async (t) => {
    const { url, client } = await startRedis(t);
    const makeHash = (): Promise<unknown> => client.pipeline().del(name).hset(name, 'status', 'ACTIVE').exec();
    return { url, cluster: null, read: () => client.get(name), damage: (text) => client.set(name, text), makeHash };
  },
  'a Cluster': async (t) => {
    const cluster = await startCluster(t, { replicas: false });
    await allowStalls(cluster);
    const nodes = cluster.nodes.map(({ port }) => ({ host: '127.0.0.1', port }));
    const damage = (text: string): Promise<unknown> => cluster.set(name, text);
    const makeHash = async (): Promise<unknown> => {
      const { client } = await cluster.ownerOf(name);
      return client.pipeline().del(name).hset(name, 'status', 'ACTIVE').exec();
    };
    return { url: 'redis://cluster', cluster: nodes, read: () => cluster.get(name), damage, makeHash };
  },
};

// A registry abandons a connection that does not respond, and opens another. When the network recovers, the kernel
// still sends the data written to the first connection. Regression: this data replaced a revocation confirmed in the
// meantime, and the key worked again.
for (const [what, start] of Object.entries(places)) {
  t.test(`on ${what} a delayed write does not replace a later one`, { skip: withoutRedis }, async (t) => {
    const { url, cluster, read, damage, makeHash } = await start(t);
    const address = { ...credentials, url, cluster, commandTimeoutMilliseconds: 5_000 };
    const store = openRecordsStore(address, 'mg:', { onLost: () => undefined, onFound: () => undefined });
    t.teardown(() => store.close());
    // The store has two connections. It takes the opening of the second one for a reconnect, so the test awaits both.
    await until(async () => (await store.gateways([])).isFresh, 'both connections of the store are open');
    await store.begin();
    const write = (status: string, revision: number, change: number) =>
      store.write([{ name: 'key:1', value: { status, revision } }], change, 'g');
    const status = async (): Promise<unknown> => (JSON.parse((await read()) ?? '{}') as { status?: string }).status;

    await write('ACTIVE', 5, 5);
    await write('REVOKED', 7, 7);
    t.equal(await write('ACTIVE', 5, 6), 7);
    t.equal(await status(), 'REVOKED');
    await write('REVOKED AGAIN', 7, 9);
    t.equal(await status(), 'REVOKED AGAIN', 'a later change of a record with the same revision');
    await write('PUT BACK', 12, 9);
    t.equal(await status(), 'PUT BACK', 'a repeated write of a record that was restored with a higher revision');
    const rewrite = (value: object | null, revision: number) =>
      store.rewrite([{ name: 'key:1', value }], revision, 'g');
    t.equal(await rewrite({ status: 'AS IT WAS', revision: 3 }, 11), 12);
    t.equal(await rewrite(null, 11), 12);
    t.equal(await status(), 'PUT BACK', 'a page of a full rewrite that arrives after the key has changed again');
    t.equal(await rewrite({ status: 'AS THE DATABASE HAS IT', revision: 3 }, 12), 0);
    t.equal(await status(), 'AS THE DATABASE HAS IT', 'a full rewrite');
    for (const damaged of [
      '',
      '{',
      '[]',
      '7',
      '{"revision":"x"}',
      '{"revision":null}',
      '{"revision":10.5}',
      '{"revision":"99"}',
      `{"revision":${2 ** 50}}`,
    ]) {
      await damage(damaged);
      await write('WHOLE', 10, 10);
      t.equal(await status(), 'WHOLE', damaged);
    }
    await makeHash();
    await write('WHOLE', 10, 10);
    t.equal(await status(), 'WHOLE', 'a value that is not a string');
    await store.write([{ name: 'key:1', value: null }], 9, 'g');
    t.not(await read(), null, 'a removal that arrives too late');
    await store.write([{ name: 'key:1', value: null }], 11, 'g');
    t.equal(await read(), null);
  });
}
