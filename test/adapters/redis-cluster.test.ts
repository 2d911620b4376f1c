import { readFileSync } from 'node:fs';
import { setImmediate as turn, setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import type { CacheLimits } from '../../src/adapters/cache/record-cache.js';
import { slotCount, slotOf, slotTags } from '../../src/adapters/redis/cluster/hash-slots.js';
import { openRecordsStore } from '../../src/adapters/redis/registry/open-records-store.js';
import type { OpenedRecordsStore } from '../../src/adapters/redis/registry/open-records-store.js';
import { RedisStoredRecords } from '../../src/adapters/redis/stored-records.js';
import { RedisExitLists } from '../../src/adapters/redis/redis-exit-lists.js';
import { RedisRecords } from '../../src/adapters/redis/gateway/redis-records.js';
import { lookupIdOf } from '../../src/gateway/api-key.js';
import { KeyStoreUnavailable } from '../../src/gateway/key-store.js';
import { RecordKeyStore } from '../../src/gateway/record-key-store.js';
import type { StoreEntry } from '../../src/gateway/store-ports.js';
import { keyStoreContract, seededRecords } from './key-store-contract.js';
import { startCluster, until } from './redis-cluster.js';
import type { ClusterServer, TestCluster } from './redis-cluster.js';
import { runIdOf, withoutRedis } from './redis-server.js';
import type { Teardown } from './redis-server.js';

const limits: CacheLimits = {
  maxEntries: 1000,
  maxAgeMilliseconds: 600_000,
  unknownMaxEntries: 1000,
  unknownMaxAgeMilliseconds: 600_000,
  maxStaleMilliseconds: 60_000,
};
const meta = { version: 1, generation: '01CONTRACT', projectedAt: '2026-01-01T00:00:00.000Z' } as const;
const merchant = { ...(seededRecords['mg:merchant:m_1'] as object), revision: 1 };
const quiet = { onLost: () => undefined, onFound: () => undefined };

type Client = ClusterServer['client'];

function addressOf({ nodes }: TestCluster, commandTimeoutMilliseconds: number) {
  return {
    ...{ url: 'redis://ignored:1', sentinels: null, masterName: '', username: null, password: null, ca: null },
    cluster: nodes.map(({ port }) => ({ host: '127.0.0.1', port })),
    commandTimeoutMilliseconds,
  };
}

/** The store as a registry uses it, once its connections are open. */
async function openStore(
  t: Teardown,
  cluster: TestCluster,
  user: object = {},
  prefix = 'mg:',
): Promise<OpenedRecordsStore> {
  const store = openRecordsStore({ ...addressOf(cluster, 5_000), ...user }, prefix, quiet);
  t.teardown(() => store.close());
  await until(async () => {
    await store.snapshot();
    return true;
  }, 'the store replies');
  return store;
}

/** The key store of a gateway, and the outages that it reported. */
function openGateway(
  t: Teardown,
  cluster: TestCluster,
  instanceId: string,
  cache: CacheLimits = limits,
  user: { username: string; password: string } | null = null,
) {
  const reported: string[] = [];
  const records = new RedisRecords({
    address: { ...addressOf(cluster, 500), ...user },
    prefix: 'mg:',
    cache,
    identity: { instanceId, environment: 'live', host: 'test', startedAt: '2026-01-01T00:00:00.000Z' },
    clock: { now: () => Date.now() },
    onMalformed: () => undefined,
    onLost: ({ message }) => reported.push(`lost: ${message}`),
    onFound: () => reported.push('found'),
  });
  const store = new RecordKeyStore(records);
  t.teardown(() => store.close());
  return { store, reported };
}

type Store = Pick<RecordKeyStore, 'find'>;

/** The status and the source of a key, e.g. `ACTIVE (cache)`; `could not ask` if the store is unavailable. */
async function ask(store: Store, lookupId: string): Promise<string> {
  try {
    const { credential, source } = await store.find(lookupId);
    return credential === null ? `absent (${source})` : `${credential.keyStatus} (${source})`;
  } catch (error) {
    if (error instanceof KeyStoreUnavailable) return 'could not ask';
    throw error;
  }
}

const keyEntry = (lookupId: string, status: string, revision: number): StoreEntry => ({
  name: `key:${lookupId}`,
  value: {
    ...{ keyId: `key_${lookupId.slice(0, 8)}`, merchantId: 'm_1', environment: 'live', status },
    ...{ permissions: ['*'], expiresAt: null, revision },
  },
});

const position = (revision: number) => ({ revision, change: `change-${revision}` });

/** Whether every master has everything that the registry wrote there. */
async function isWhole(store: OpenedRecordsStore): Promise<boolean> {
  return (await store.snapshot()).isWhole;
}

/** Writes like a registry that finds the store incomplete: all records, then `mg:meta`, which marks it complete. */
async function rebuild(store: OpenedRecordsStore, entries: readonly StoreEntry[], revision: number): Promise<void> {
  await store.begin();
  await store.rewrite([{ name: 'merchant:m_1', value: merchant }, ...entries], revision, 'g');
  await store.complete({ ...meta, projectedAt: new Date().toISOString() }, position(revision));
}

async function acknowledged(store: OpenedRecordsStore, instanceId: string): Promise<number> {
  const { gateways } = await store.gateways([]);
  return gateways.find((one) => one.instanceId === instanceId)?.acknowledgement?.revision ?? -1;
}

/** A look-up id whose record belongs to this master. */
async function idAt(cluster: TestCluster, node: ClusterServer, salt: string): Promise<string> {
  for (let count = 0; ; count += 1) {
    const id = lookupIdOf(`svc_live_${salt}${count}`, null);
    if ((await cluster.ownerOf(`mg:key:${id}`)).id === node.id) return id;
  }
}

t.test('a Redis Cluster as key store', { skip: withoutRedis }, async (t) => {
  const cluster = await startCluster(t);
  const store = await openStore(t, cluster);
  const masters = async (): Promise<ClusterServer[]> => {
    const owners = await Promise.all([0, 5461, 10923].map((slot) => cluster.ownerOf(`{${slotTags()[slot] ?? ''}}`)));
    return owners;
  };

  await t.test('names are hashed as Redis does it, and each slot has its tag', async (t) => {
    const [{ client }] = cluster.nodes as [ClusterServer];
    for (const name of ['', 'mg:meta', '123456789', 'a{b}c', 'a{}b', '{}', 'a}b{c}{d}', 'a{b', 'é{ü}', '{{x}}']) {
      t.equal(slotOf(name), await client.call('CLUSTER', 'KEYSLOT', name), name);
    }
    t.same(
      slotTags().map((tag) => slotOf(`mg:slot:{${tag}}`)),
      Array.from({ length: slotCount }, (_, slot) => slot),
    );
    t.equal(slotOf('mg:changed:{mg:revision}'), slotOf('mg:revision'));
  });

  await t.test('a look returns every master and the last published change', async (t) => {
    const own = await openStore(t, cluster, {}, 'look:');
    const servers = (await Promise.all((await masters()).map(runIdOf))).toSorted();
    t.equal(servers.length, 3);
    t.match(await own.snapshot(), { servers, meta: null, revision: 0, change: null, isWhole: false });
    t.equal(own.canFailOver, true);
    await own.begin();
    await own.publish(position(2));
    t.match(await own.snapshot(), { revision: 2, change: 'change-2' });
    t.equal(slotOf('look:change:{look:revision}'), slotOf('look:revision'), 'one script writes both');
    await t.rejects(own.complete({ ...meta, servers }, position(1)), /another registry has written a later change/);
    t.equal((await own.snapshot()).meta, null, 'it is not complete before its revision is published');
    t.match(await own.snapshot(), { revision: 2, change: 'change-2' }, 'the change still belongs to the revision');
    await own.complete({ ...meta, servers }, position(3));
    t.match(await own.snapshot(), { meta: { ...meta, servers }, revision: 3, change: 'change-3', isWhole: true });
    await cluster.set('look:revision', '4');
    t.match(await own.snapshot(), { revision: 4, change: null }, 'the change belongs to another revision');
  });

  await t.test('gateways are listed and granted at every master, in the generation of these masters', async (t) => {
    const own = await openStore(t, cluster, {}, 'seen:');
    const servers = (await Promise.all((await masters()).map(runIdOf))).toSorted();
    const instanceIds = ['a', 'b', 'c', 'd', 'e', 'f'];
    const owners = await Promise.all(instanceIds.map((id) => cluster.ownerOf(`seen:gateway:${id}`)));
    t.equal(new Set(owners.map(({ id }) => id)).size, 3, 'they are at different masters');
    const put = (id: string, instanceId = id): Promise<void> => {
      const details = { environment: 'live', host: 'h', startedAt: meta.projectedAt, now: Date.now() + 3_600_000 };
      return cluster.set(`seen:gateway:${id}`, JSON.stringify({ instanceId, revision: 7, ...details }));
    };
    for (const id of instanceIds) await put(id, id === 'f' ? 'a' : id);
    const generation = async (): Promise<string | null> => (await own.gateways([])).generation;
    t.equal(await generation(), null);
    for (const named of [undefined, [], servers.slice(1), [...servers, 'x'], ['x', 'y', 'z']]) {
      await cluster.set('seen:meta', JSON.stringify({ ...meta, ...(named === undefined ? {} : { servers: named }) }));
      t.equal(await generation(), null, `no generation for servers ${String(named)}`);
    }
    await cluster.set('seen:meta', JSON.stringify({ ...meta, servers }));
    t.equal(await generation(), meta.generation);

    const seen = async (...roster: string[]) => {
      const { gateways, isFresh } = await own.gateways(roster);
      t.equal(isFresh, true);
      return new Map(gateways.map((one) => [one.instanceId, one]));
    };
    const first = await seen('gone');
    t.same([...first.keys()].toSorted(), [...instanceIds, 'gone']);
    t.match(first.get('e'), { acknowledgement: { revision: 7, host: 'h' } });
    for (const id of ['f', 'gone'])
      t.match(first.get(id), { acknowledgement: null }, `${id} has no acknowledgement with its own id`);
    await wait(300);
    const began = performance.now();
    for (const id of ['a', 'b', 'c']) await put(id);
    const second = await seen();
    const elapsed = performance.now() - began;
    for (const id of ['a', 'b', 'c']) {
      const { silentMilliseconds = Infinity, clockSkewMilliseconds = 0 } = second.get(id) ?? {};
      t.ok(
        silentMilliseconds <= elapsed && Math.abs((clockSkewMilliseconds ?? 0) - 3_600_000) < 1_000 + elapsed,
        `the notice of ${id} arrived`,
      );
    }
    const silence = async (): Promise<number> => {
      const { gateways, isFresh } = await own.gateways([]);
      const one = gateways.find(({ instanceId }) => instanceId === 'e');
      if (one === undefined || !isFresh) throw new Error('the silence is unknown');
      return one.silentMilliseconds;
    };
    await wait(300);
    t.ok((await silence()) >= 600, 'no notice of this gateway arrived');
    const [elsewhere] = owners.filter(({ id }) => id !== owners[4]?.id);
    const closed = performance.now();
    await elsewhere?.client.call('CLIENT', 'KILL', 'TYPE', 'pubsub');
    await until(async () => (await silence()) <= performance.now() - closed, 'a notice may have been missed');

    const grants = instanceIds.map((instanceId, beat) => ({
      ...{ instanceId, beat, generation: 'g', lifetimeMilliseconds: 31_000 },
    }));
    await own.grant(grants);
    for (const { instanceId, ...grant } of grants) {
      t.same(JSON.parse((await cluster.get(`seen:grant:${instanceId}`)) ?? ''), grant);
    }
    await own.removeGateways(instanceIds.slice(1));
    for (const id of instanceIds.slice(1)) {
      t.same([await cluster.get(`seen:grant:${id}`), await cluster.get(`seen:gateway:${id}`)], [null, null]);
    }
    t.not(await cluster.get('seen:grant:a'), null);
    const left = [...(await seen()).values()].filter(({ acknowledgement }) => acknowledgement !== null);
    t.same(
      left.map(({ instanceId }) => instanceId),
      ['a'],
    );
  });

  await t.test('a Cluster that was never seeded decides nothing, and a rebuild completes it', async (t) => {
    const gateway = openGateway(t, cluster, 'unseeded');
    await until(
      () => Promise.resolve(gateway.store.unavailableReason()?.includes('has no meta record') === true),
      'no meta record',
    );
    t.equal(await ask(gateway.store, lookupIdOf('svc_live_nobody', null)), 'could not ask');
    t.equal(await isWhole(store), false);
    await rebuild(store, [], 0);
    t.equal(await isWhole(store), true);
    await until(
      async () => (await ask(gateway.store, lookupIdOf('svc_live_nobody', null))).startsWith('absent'),
      'seeded',
    );
  });

  // Regression: a registry that resumed after a pause set the revision back with a plain SET. Gateways then assumed
  // that changes were lost, and sent 503 until all records were rewritten.
  await t.test('a registry that was paused does not set the revision back', async (t) => {
    const paused = await openStore(t, cluster);
    await paused.begin();
    await store.publish(position(2));
    await t.rejects(paused.publish(position(1)), /another registry has written a later change/);
    t.equal((await store.snapshot()).revision, 2);
    await store.publish(position(2));
    for (const damaged of ['', 'x', '2.5', 'nan', 'inf', String(2 ** 51)]) {
      await cluster.set('mg:revision', damaged);
      await store.publish(position(1));
      t.equal((await store.snapshot()).revision, 1, `${damaged}: an invalid revision is replaced`);
    }
    const owner = await cluster.ownerOf('mg:revision');
    await owner.client.del('mg:revision');
    await owner.client.rpush('mg:revision', 'a list');
    t.equal((await store.snapshot()).revision, 0, 'a revision of another Redis type is not an outage either');
    await store.publish(position(1));
    t.equal((await store.snapshot()).revision, 1);
    await cluster.set('mg:revision', '0');
  });

  await t.test('records are read as they are stored, at every master', async (t) => {
    const ids = await Promise.all((await masters()).map((node, index) => idAt(cluster, node, `stored${index}`)));
    for (const id of ids) await cluster.set(`mg:key:${id}`, `"${id}"`);
    const stored = new RedisStoredRecords(addressOf(cluster, 500), 'mg:');
    t.teardown(() => {
      stored.close();
    });
    const found = new Map<string, string>();
    for await (const [id, text] of stored.keys()) found.set(id, text);
    t.same([...found].toSorted(), ids.map((id) => [id, `"${id}"`]).toSorted());
    t.match(await stored.read('meta'), '01CONTRACT');
    t.equal(await stored.read('merchant:nobody'), null);
    for (const id of ids) await (await cluster.ownerOf(`mg:key:${id}`)).client.del(`mg:key:${id}`);
  });

  await t.test('it satisfies the key store contract', async (t) => {
    const clients = new Map<string, Client>();
    const clientOf = async (name: string): Promise<Client> => {
      const client = clients.get(name) ?? (await cluster.ownerOf(name)).client;
      clients.set(name, client);
      return client;
    };
    await clientOf('mg:meta');
    // One gateway for all record sets: it must drop the records cached from the previous set.
    const gateway = openGateway(t, cluster, 'contract');
    let count = 100;
    keyStoreContract(t, async (records) => {
      await Promise.all([...clients].map(([name, client]) => client.del(name)));
      const given = Object.entries({ ...records, 'mg:revision': (count += 1) });
      for (const [name, value] of given) await (await clientOf(name)).set(name, JSON.stringify(value));
      const isSeeded = JSON.stringify(records['mg:meta']) === JSON.stringify(seededRecords['mg:meta']);
      await until(async () => {
        if (!isSeeded && !('more' in Object(records['mg:meta']))) return gateway.store.unavailableReason() !== null;
        return gateway.store.unavailableReason() === null && (await acknowledged(store, 'contract')) === count;
      }, 'the gateway has seen the records');
      return { store: gateway.store, close: () => Promise.resolve() };
    });
  });

  let revision = 1_000;
  const ids = await Promise.all((await masters()).map((node) => idAt(cluster, node, 'each')));
  const [first = '', second = '', third = ''] = ids;
  const active = (): StoreEntry[] => ids.map((id) => keyEntry(id, 'ACTIVE', revision));
  const change = async (lookupId: string, status: string): Promise<number> => {
    revision += 1;
    await store.write([keyEntry(lookupId, status, revision)], revision, 'g');
    await store.publish(position(revision));
    return revision;
  };
  await cluster.set('mg:meta', JSON.stringify(meta));
  await rebuild(store, active(), revision);
  const { store: keys, reported } = openGateway(t, cluster, 'gateway-1');
  const holdsAll = async (): Promise<void> => {
    for (const id of ids) await until(async () => (await ask(keys, id)) === 'ACTIVE (cache)', `${id} is cached`);
  };

  await t.test('a change at any master, expiry and flush invalidate records; revisions are acknowledged', async (t) => {
    await holdsAll();
    for (const id of ids) {
      for (const status of ['REVOKED', 'ACTIVE']) {
        const at = await change(id, status);
        await until(async () => (await acknowledged(store, 'gateway-1')) >= at, `revision ${at}`);
        t.match(await ask(keys, id), status, 'an acknowledged change is in force');
      }
      const { client } = await cluster.ownerOf(`mg:key:${id}`);
      t.match(await ask(keys, id), 'ACTIVE');
      await client.pexpire(`mg:key:${id}`, 1);
      await until(async () => (await ask(keys, id)) === 'could not ask', 'the record expired, which is damage');
      await change(id, 'ACTIVE');
      await until(async () => (await ask(keys, id)) === 'ACTIVE (cache)', 'the record is back');
    }
  });

  await t.test('a request concurrent with a change in its slot succeeds', async (t) => {
    await holdsAll();
    const [id = ''] = ids;
    let [isOver, requests, failed] = [false, 0, 0];
    const asking = (async (): Promise<void> => {
      for (; !isOver; requests += 1) {
        if ((await ask(keys, id)) === 'could not ask') failed += 1;
        await turn();
      }
    })();
    for (let changes = 0; changes < 200; changes += 1) await change(id, 'ACTIVE');
    isOver = true;
    await asking;
    t.equal(failed, 0, `no failure in ${requests} requests`);
  });

  await t.test('users with an access control list need only the documented rights', async (t) => {
    const documented = readFileSync('docs/records.md', 'utf8').replaceAll('\n', ' ');
    const rightsAfter = (words: string): string[] => {
      const [, rest = ''] = documented.split(words);
      const [, rights = ''] = rest.split('`');
      return rights.split(' ');
    };
    const gatewayRights = [...rightsAfter('on one server:'), ...rightsAfter('besides those above:')];
    const registryRights = [...gatewayRights, ...rightsAfter('the registry also'), '+scan'];
    for (const [user, rights] of Object.entries({ gateway: gatewayRights, registry: registryRights })) {
      t.ok(rights.length > 10);
      for (const { client } of cluster.nodes) {
        const where = ['resetchannels', '&__redis__:invalidate', '~mg:*'];
        await client.call('ACL', 'SETUSER', user, 'on', '>secret', ...where, ...rights);
      }
    }
    const user = { username: 'gateway', password: 'secret' };
    const gateway = openGateway(t, cluster, 'limited', limits, user);
    await until(
      async () => (await ask(gateway.store, first)) === 'ACTIVE (cache)',
      'a gateway has all the rights that it needs',
    );
    await until(async () => (await ask(gateway.store, lookupIdOf('svc_live_x', null))) === 'absent (cache)', 'absent');
    const exits = new RedisExitLists({ ...addressOf(cluster, 500), ...user }, 'mg:', () => undefined);
    t.teardown(() => exits.close());
    await until(async () => (await exits.read()) === null, 'the Tor exit list can be read');
    const registry = await openStore(t, cluster, { username: 'registry', password: 'secret' });
    await rebuild(registry, active(), revision);
    t.equal(await isWhole(registry), true, 'and so can a registry');
    revision += 1;
    await registry.write([keyEntry(third, 'ACTIVE', revision)], revision, 'g');
    await registry.publish(position(revision));
    for await (const name of registry.names('key:')) t.match(name, /^key:/);
    await until(async () => (await acknowledged(registry, 'limited')) === revision, 'acknowledged');
    await gateway.store.close();
  });

  await t.test(
    'with a hung master no revision is acknowledged, then look-ups fail, but never with a 401',
    async (t) => {
      const { store: short } = openGateway(t, cluster, 'short', { ...limits, maxStaleMilliseconds: 4_000 });
      for (const id of ids) await until(async () => (await ask(short, id)) === 'ACTIVE (cache)', 'held');
      const important = new Set([(await cluster.ownerOf('mg:meta')).id, (await cluster.ownerOf('mg:revision')).id]);
      const acknowledging = await cluster.ownerOf('mg:gateway:short');
      const silent = (await masters()).find(({ id }) => !important.has(id) && id !== acknowledging.id);
      if (silent === undefined) throw new Error('every master is important');
      for (const { client } of cluster.nodes) await client.config('SET', 'cluster-replica-no-failover', 'yes');
      const before = revision;
      const publishing = await cluster.ownerOf('mg:revision');
      silent.signal('SIGSTOP');
      await publishing.client.set('mg:revision', String((revision += 1)));
      const seen = new Set<string>();
      const acknowledgedRevisions = new Set<number>();
      await until(async () => {
        for (const id of ids) seen.add(await ask(short, id));
        // The other masters soon notice that one is missing, and then reply only with errors.
        const text = await acknowledging.client.get('mg:gateway:short').catch(() => null);
        if (text !== null) acknowledgedRevisions.add((JSON.parse(text) as { revision: number }).revision);
        return seen.has('could not ask') && short.unavailableReason() !== null;
      }, 'cached records are beyond the stale limit');
      t.ok(seen.has('ACTIVE (stale)'), `served stale until then: ${[...seen].join(', ')}`);
      t.notOk(
        [...seen].some((result) => result.startsWith('absent')),
        'no key was unknown',
      );
      t.same([...acknowledgedRevisions], [before], 'the revision is not acknowledged');
      await t.rejects(store.gateways([]), 'the registry reports neither live gateways nor completeness');
      silent.signal('SIGCONT');
      await until(
        async () => (await acknowledged(store, 'short')) === revision,
        'the master and the gateways have recovered',
      );
      for (const { client } of cluster.nodes) await client.config('SET', 'cluster-replica-no-failover', 'no');
      await cluster.settled();
      await holdsAll();
    },
  );

  await t.test('the Tor exit list and its claim are shared in a Cluster too', async (t) => {
    const [one, other] = [0, 1].map(() => {
      const lists = new RedisExitLists(addressOf(cluster, 5_000), 'mg:', () => undefined);
      t.teardown(() => lists.close());
      return lists;
    }) as [RedisExitLists, RedisExitLists];
    // While a client is connecting to a node, it accepts no command for this node. So the test repeats `release`.
    const release = async (lists: RedisExitLists) => {
      const own = await lists.claim();
      await own?.release();
      return own !== null && (await lists.read()) === null;
    };
    for (const lists of [one, other]) await until(() => release(lists), 'the master of the claim is connected');
    const claim = await one.claim();
    t.equal(await other.claim(), null, 'one process fetches');
    t.equal(await claim?.publish('{"exits":1}'), true);
    t.equal(await other.read(), '{"exits":1}');
    t.equal(await cluster.get('mg:tor-exits'), '{"exits":1}');
    await claim?.release();
    const next = await other.claim();
    t.ok(next, 'then another process');
    t.equal(await claim?.publish('late'), false);
    await next?.release();
  });

  await t.test('after the flush of one master missing records are unavailable until it is whole again', async (t) => {
    await holdsAll();
    const owner = await cluster.ownerOf(`mg:key:${first}`);
    const unknownKey = await idAt(cluster, owner, 'nobody');
    t.match(await ask(keys, unknownKey), 'absent');
    await owner.client.flushall();
    const seen = new Set<string>();
    await until(async () => {
      for (const id of [first, unknownKey]) seen.add(await ask(keys, id));
      return seen.has('could not ask');
    }, 'the flush is noticed');
    for (let count = 0; count < 50; count += 1) {
      t.equal(await ask(keys, first), 'could not ask');
      t.equal(await ask(keys, unknownKey), 'could not ask');
    }
    t.notOk(seen.has('absent (store)'), 'a valid key was never unknown');
    t.equal(await isWhole(store), false, 'the registry detects it');
    await store.begin();
    await store.rewrite(active(), revision, 'g');
    await owner.client.flushall();
    await t.rejects(
      store.complete(meta, position(revision)),
      /changed while records were written; retrying/,
      'the records written in the meantime may be lost again',
    );
    t.equal(await ask(keys, first), 'could not ask');
    await rebuild(store, active(), revision);
    t.equal(await isWhole(store), true);
    await holdsAll();
    await until(async () => (await ask(keys, unknownKey)).startsWith('absent'), 'unknown keys are unknown again');
  });

  await t.test('after the loss of a master gateways recover, and a revoked key stays revoked', async (t) => {
    await holdsAll();
    const at = await change(first, 'REVOKED');
    await until(async () => (await acknowledged(store, 'gateway-1')) >= at, 'the revocation is acknowledged');
    await cluster.settled();
    reported.length = 0;
    const victim = await cluster.ownerOf(`mg:key:${first}`);
    await victim.kill();
    const seen: string[] = [];
    await until(async () => {
      for (const id of ids) seen.push(`${id === first ? 'revoked' : 'valid'}: ${await ask(keys, id)}`);
      const owner = await cluster.ownerOf(`mg:key:${first}`);
      return owner.id !== victim.id && (await ask(keys, first)) === 'REVOKED (cache)';
    }, 'the replica has taken over');
    t.same(
      seen.filter((one) => one.startsWith('revoked: ACTIVE') || one.includes('absent')),
      [],
    );
    for (const id of [second, third])
      await until(async () => (await ask(keys, id)) === 'ACTIVE (cache)', 'cached again');
    await until(() => Promise.resolve(reported.at(-1) === 'found'), 'the recovery is reported');
    t.ok(reported.length <= 4, `an outage is two lines, not one per attempt: ${reported.join(', ')}`);
    const back = await change(first, 'ACTIVE').catch(async () => {
      await until(() => isWhole(store), 'the registry has found the new master');
      return change(first, 'ACTIVE');
    });
    await until(async () => (await acknowledged(store, 'gateway-1')) >= back, 'changes are acknowledged again');
    t.match(await ask(keys, first), 'ACTIVE', "the new master's notices arrive");
    t.equal(await isWhole(store), true, 'nothing was lost');
    await victim.restart();
    await cluster.settled();
  });

  await t.test('a promoted replica that lacks a revocation is not trusted until it has it again', async (t) => {
    await until(() => isWhole(store), 'whole');
    await holdsAll();
    await cluster.settled();
    const revisionOwner = await cluster.ownerOf('mg:revision');
    const owners = await Promise.all(ids.map(async (id) => ({ id, owner: await cluster.ownerOf(`mg:key:${id}`) })));
    const [{ id, owner } = { id: first, owner: revisionOwner }] = owners.filter(
      (one) => one.owner.id !== revisionOwner.id,
    );
    const roles = await Promise.all(cluster.nodes.map(async (node) => ({ node, role: await node.client.role() })));
    const replica = roles.find(({ role }) => role[0] === 'slave' && role[2] === owner.port)?.node;
    if (replica === undefined) throw new Error('there is no replica');
    // Replication fails from here on, so the following change reaches no replica.
    await replica.client.config('SET', 'masteruser', 'nobody');
    await replica.client.config('SET', 'masterauth', 'nothing');
    await owner.client.call('CLIENT', 'KILL', 'TYPE', 'replica');
    await until(
      async () => (await owner.client.info('replication')).includes('connected_slaves:0'),
      'the replica is disconnected',
    );
    const at = await change(id, 'REVOKED');
    await until(async () => (await acknowledged(store, 'gateway-1')) >= at, 'the revocation is acknowledged');
    await owner.kill();
    await replica.client.call('CLUSTER', 'FAILOVER', 'TAKEOVER');
    await until(async () => (await cluster.ownerOf(`mg:key:${id}`)).id === replica.id, 'promoted');
    t.match(await replica.client.get(`mg:key:${id}`), /"ACTIVE"/, 'it lacks the revocation');
    const late = openGateway(t, cluster, 'late');
    const seen = new Set<string>();
    const others = ids.filter((one) => one !== id);
    await until(async () => {
      for (const one of [keys, late.store]) seen.add(await ask(one, id));
      const results = await Promise.all(others.map((one) => ask(late.store, one)));
      return results.every((result) => result === 'ACTIVE (cache)');
    }, 'a gateway that starts now serves every complete slot');
    for (let count = 0; count < 100; count += 1) for (const one of [keys, late.store]) seen.add(await ask(one, id));
    t.notOk(
      [...seen].some((result) => result.startsWith('ACTIVE')),
      `never accepted: ${[...seen].join(', ')}`,
    );
    t.equal(await ask(late.store, id), 'could not ask');
    await until(async () => !(await isWhole(store)), 'the registry detects it');
    revision += 1;
    const slot = slotOf(`mg:key:${id}`);
    await store.write(
      [{ ...keyEntry(id, 'ACTIVE', revision), name: `key:{${slotTags()[slot] ?? ''}}` }],
      revision,
      'g',
    );
    await store.publish(position(revision));
    await until(async () => (await acknowledged(store, 'late')) >= revision, 'another change in the slot');
    t.equal(await ask(late.store, id), 'could not ask', 'it does not hide what the slot lacks');
    const entries = ids.map((one) => keyEntry(one, one === id ? 'REVOKED' : 'ACTIVE', revision));
    await rebuild(store, entries, revision);
    t.equal(await isWhole(store), true);
    for (const one of [keys, late.store])
      await until(async () => (await ask(one, id)) === 'REVOKED (cache)', 'repaired');
    await replica.client.config('SET', 'masteruser', '');
    await replica.client.config('SET', 'masterauth', '');
    await owner.restart();
    await cluster.settled();
    const again = await change(id, 'ACTIVE');
    await until(async () => (await acknowledged(store, 'late')) >= again, 'changes continue');
    await holdsAll();
  });

  await t.test('while a slot migrates to another master no notice is lost, and every look-up succeeds', async (t) => {
    await cluster.settled();
    await until(() => isWhole(store), 'whole');
    await holdsAll();
    const name = `mg:key:${second}`;
    const slot = String(slotOf(name));
    const from = await cluster.ownerOf(name);
    const to = (await masters()).find(({ id }) => id !== from.id);
    if (to === undefined) throw new Error('there is one master');
    const changed = async (status: string): Promise<void> => {
      const at = await change(second, status);
      await until(async () => (await acknowledged(store, 'gateway-1')) >= at, `acknowledged: ${status}`);
      await until(async () => (await ask(keys, second)).startsWith(status), status);
    };
    const seen = new Set<string>();
    const state = { isRunning: true };
    const asking = (async () => {
      while (state.isRunning) {
        seen.add((await ask(keys, second)).replace(/ .*/, ''));
        await wait(1);
      }
    })();
    await to.client.call('CLUSTER', 'SETSLOT', slot, 'IMPORTING', from.id);
    await from.client.call('CLUSTER', 'SETSLOT', slot, 'MIGRATING', to.id);
    await changed('REVOKED');
    const move = (one: string): Promise<unknown> =>
      from.client.call('MIGRATE', '127.0.0.1', String(to.port), one, '0', '5000');
    await move(name);
    await changed('ACTIVE');
    const marker = `mg:slot:{${slotTags()[Number(slot)] ?? ''}}`;
    await move(marker);
    await changed('REVOKED');
    for (const one of (await from.client.call('CLUSTER', 'GETKEYSINSLOT', slot, '100')) as string[]) await move(one);
    for (const node of [to, from, ...(await masters())])
      await node.client.call('CLUSTER', 'SETSLOT', slot, 'NODE', to.id);
    await cluster.settled();
    await until(() => isWhole(store), 'the registry has found the new master, and nothing is lost');
    await changed('ACTIVE');
    t.equal((await cluster.ownerOf(name)).id, to.id);
    state.isRunning = false;
    await asking;
    t.notOk(seen.has('absent'), `never unknown: ${[...seen].join(', ')}`);
    await until(async () => (await ask(keys, second)) === 'ACTIVE (cache)', 'the record is cached as before');
  });
});
