import { randomBytes } from 'node:crypto';
import { setTimeout as wait } from 'node:timers/promises';
import type { Test } from 'tap';
import type { HostAndPort } from '../../src/adapters/redis/connection.js';
import { openRecordsStore } from '../../src/adapters/redis/registry/open-records-store.js';
import { RedisRecords } from '../../src/adapters/redis/gateway/redis-records.js';
import { Seals } from '../../src/adapters/redis/seal.js';
import { systemClock, systemTimers } from '../../src/cli/compose/system-clock.js';
import { lookupIdOf } from '../../src/gateway/api-key.js';
import { KeyStoreUnavailable } from '../../src/gateway/key-store.js';
import { RecordKeyStore } from '../../src/gateway/record-key-store.js';
import { startRegistry } from '../../src/registry/start-registry.js';
import { allowStalls, startCluster, until } from '../adapters/redis-cluster.js';
import { startRedis } from '../adapters/redis-server.js';

const token = 'a-token-of-the-tests-that-is-long-enough';
const nowhere = { sentinels: null, masterName: '', username: null, password: null, ca: null };
const callbacks = { onLost: () => undefined, onFound: () => undefined };

/** The result of a key look-up: the key's status, unknown, or store unavailable. */
export type LookupResult = string;

/** A key of the registry, and the name of its record in Redis. */
export interface SealedKey {
  readonly key: string;
  readonly keyId: string;
  readonly merchantId: string;
  readonly name: string;
}

export const secrets = ['a', 'b', 'c'].map((letter) => Buffer.from(letter.repeat(32))) as [Buffer, Buffer, Buffer];

/** A Redis with the records, and the operations of an attacker with write access. */
interface Place {
  readonly address: { readonly url: string; readonly cluster: readonly HostAndPort[] | null };
  get(name: string): Promise<string | null>;
  set(name: string, text: string): Promise<unknown>;
  del(name: string): Promise<unknown>;
  exists(name: string): Promise<number>;
}

async function oneServer(t: Test): Promise<Place> {
  const { client, url } = await startRedis(t);
  return {
    address: { url, cluster: null },
    get: (name) => client.get(name),
    set: (name, text) => client.set(name, text),
    del: (name) => client.del(name),
    exists: (name) => client.exists(name),
  };
}

async function aCluster(t: Test): Promise<Place> {
  const cluster = await startCluster(t, { replicas: false });
  await allowStalls(cluster);
  const at = async (name: string) => (await cluster.ownerOf(name)).client;
  return {
    address: { url: 'redis://cluster', cluster: cluster.nodes.map(({ port }) => ({ host: '127.0.0.1', port })) },
    get: async (name) => (await at(name)).get(name),
    set: async (name, text) => (await at(name)).set(name, text),
    del: async (name) => (await at(name)).del(name),
    exists: async (name) => (await at(name)).exists(name),
  };
}

/** The kinds of Redis under test, all with sealed records. */
export const places = { 'one server': oneServer, 'a Cluster': aCluster } as const;

/**
 * Starts a Redis. Returns functions that start registries on one database, and gateways, each with the secrets that the
 * test passes.
 */
export async function sealedDeployment(t: Test, open: (t: Test) => Promise<Place> = oneServer) {
  const redis = await open(t);
  const address = { ...nowhere, ...redis.address, commandTimeoutMilliseconds: 5_000 };
  const directory = t.testdir({ token });
  const logged: string[] = [];
  const log = (_details: object, message: string): void => void logged.push(message);
  const logFailure = (details: object, message: string): void => {
    log(details, `${message}: ${String((details as { err?: unknown }).err)}`);
  };

  const startOne = async (recordSecrets: readonly Buffer[]) => {
    const store = openRecordsStore(address, 'mg:', callbacks, new Seals(recordSecrets));
    const registry = await startRegistry({
      ...{
        host: '127.0.0.1',
        port: 0,
        databaseUrl: `sqlite:${directory}/registry.db`,
        tokenFile: `${directory}/token`,
      },
      ...{
        store,
        clock: systemClock,
        timers: systemTimers,
        random: randomBytes,
        pepper: null,
        maxStaleSeconds: 30,
        resources: new Set<string>(),
      },
      logger: { error: log, warn: logFailure, info: log },
    });
    let isOpen = true;
    const close = async (): Promise<void> => {
      if (!isOpen) return;
      isOpen = false;
      await registry.close();
      await store.close();
    };
    t.teardown(close);
    // The tests make their first change only after the first projection. Otherwise the registry would wait until the
    // records of a possible earlier store are stale.
    await until(async () => (await redis.get('mg:meta')) !== null, 'the registry has written the meta record');
    const call = async (method: string, path: string, body?: object) => {
      const response = await fetch(registry.url + path, {
        ...{ method, headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' } },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      });
      return (await response.json()) as { data: Record<string, unknown> };
    };
    return { call, close, database: registry.database, store, url: registry.url };
  };
  type Registry = Awaited<ReturnType<typeof startOne>>;

  return {
    ...{ redis, logged, startRegistry: startOne },
    createKey: async ({ call }: Registry, merchant?: string): Promise<SealedKey> => {
      const merchantId = merchant ?? String((await call('POST', '/merchants', { name: 'Shop', goLive: true })).data.id);
      const { key, keyId } = (await call('POST', `/merchants/${merchantId}/keys`, { environment: 'live' })).data;
      return { key: String(key), keyId: String(keyId), merchantId, name: `mg:key:${lookupIdOf(String(key), null)}` };
    },
    startGateway: async (recordSecrets: readonly Buffer[], waits = true) => {
      const refused: { name: string; reason: string }[] = [];
      const instanceId = `gateway-${randomBytes(4).toString('hex')}`;
      const records = new RedisRecords({
        ...{
          address: { ...address, commandTimeoutMilliseconds: 1_000 },
          prefix: 'mg:',
          seals: new Seals(recordSecrets),
        },
        cache: {
          ...{ maxEntries: 1_000, maxAgeMilliseconds: 60_000, maxStaleMilliseconds: 30_000 },
          ...{ unknownMaxEntries: 100, unknownMaxAgeMilliseconds: 5_000 },
        },
        identity: { instanceId, environment: 'live', host: 'test', version: '1', startedAt: new Date().toISOString() },
        clock: systemClock,
        onMalformed: (name, _problem, reason) => refused.push({ name, reason }),
        ...callbacks,
      });
      const keys = new RecordKeyStore(records);
      let isOpen = true;
      const close = async (): Promise<void> => {
        if (isOpen) await keys.close();
        isOpen = false;
      };
      t.teardown(close);
      const ask = async (key: string): Promise<LookupResult> => {
        try {
          return (await keys.find(lookupIdOf(key, null))).credential?.keyStatus ?? 'unknown';
        } catch (error) {
          if (error instanceof KeyStoreUnavailable) return 'unavailable';
          throw error;
        }
      };
      if (waits) await until(() => Promise.resolve(keys.unavailableReason() === null), 'the gateway can look up keys');
      return { ask, close, instanceId, reason: () => keys.unavailableReason(), records, refused };
    },
  };
}

/** Repeats a look-up until `stop` is called. `stop` returns how often each result came. */
export function askAllTheWhile(ask: () => Promise<LookupResult>) {
  const results: Record<string, number> = {};
  let count = 0;
  const run = { isOver: false };
  const lookups = (async () => {
    while (!run.isOver) {
      const result = await ask();
      results[result] = (results[result] ?? 0) + 1;
      count += 1;
      await wait(2);
    }
  })();
  return {
    /** Resolves when this many more look-ups have started and ended after the call. */
    more: (most: number): Promise<void> => {
      const enough = count + most + 1;
      return until(() => Promise.resolve(count >= enough), `${most} more look-ups have ended`);
    },
    stop: async (): Promise<Readonly<Record<string, number>>> => {
      run.isOver = true;
      await lookups;
      return results;
    },
  };
}
