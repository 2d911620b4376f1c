import { randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import type { RedisAddress } from '../../src/adapters/redis/connection.js';
import { openRecordsStore } from '../../src/adapters/redis/registry/open-records-store.js';
import { RedisRecords } from '../../src/adapters/redis/gateway/redis-records.js';
import { systemClock, systemTimers } from '../../src/cli/compose/system-clock.js';
import { lookupIdOf } from '../../src/gateway/api-key.js';
import { RecordKeyStore } from '../../src/gateway/record-key-store.js';
import { startRegistry } from '../../src/registry/start-registry.js';
import { startRedis } from '../adapters/redis-server.js';
import type { RedisServer, Teardown } from '../adapters/redis-server.js';

const nowhere = { sentinels: null, masterName: '', cluster: null, username: null, password: null, ca: null };
const rowsAtOnce = 500;

/** A registry as its command starts it, on the test's own Redis and SQLite file, and gateways that read this Redis. */
export async function registryOnRedis(t: Teardown, settings: readonly string[] = [], given: RedisServer | null = null) {
  const redis = given ?? (await startRedis(t, settings));
  const directory = await mkdtemp(path.join(tmpdir(), 'merchant-gateway-registry-'));
  t.teardown(() => rm(directory, { recursive: true, force: true }));
  const tokenFile = path.join(directory, 'token.txt');
  await writeFile(tokenFile, 'an-administrators-token-of-enough-characters\n');
  const address: RedisAddress = { ...nowhere, url: redis.url, commandTimeoutMilliseconds: 1_000 };
  const logged: string[] = [];
  const log = (details: object, message: string): void => {
    const { err, reason = err } = details as { err?: Error; reason?: unknown };
    logged.push(`${message}: ${reason instanceof Error ? reason.message : JSON.stringify(details)}`);
  };

  async function start() {
    const store = openRecordsStore({ ...address, commandTimeoutMilliseconds: 5_000 }, 'mg:', {
      onLost: () => undefined,
      onFound: () => {
        registry.storeFound();
      },
    });
    const registry = await startRegistry({
      ...{ host: '127.0.0.1', port: 0, databaseUrl: `sqlite:${path.join(directory, 'registry.db')}`, tokenFile },
      ...{
        store,
        clock: systemClock,
        timers: systemTimers,
        random: randomBytes,
        pepper: null,
        maxStaleSeconds: 30,
        resources: new Set<string>(),
      },
      logger: { error: log, warn: log, info: log },
    });
    let isOpen = true;
    const stop = async (): Promise<void> => {
      if (!isOpen) return;
      isOpen = false;
      await registry.close();
      await store.close();
    };
    t.teardown(stop);
    return { ...registry, stop };
  }

  return {
    ...{ redis, logged, start },
    /** Inserts old keys, one hundred per merchant, without change records. @returns the keys' look-up ids */
    insertKeys: async ({ database }: Awaited<ReturnType<typeof start>>, count: number): Promise<string[]> => {
      const moments = { created_revision: 0, revision: 0, created_at: 0, updated_at: 0 };
      const lists = { ip_allowlist: null, origin_allowlist: null };
      const merchants = Array.from({ length: Math.ceil(count / 100) }, (_, index) => ({
        ...{ id: `m_${index}`, name: 'Shop', status: 'ACTIVE', go_live: 1, ...lists, ...moments },
      }));
      const ids = Array.from({ length: count }, (_, index) => lookupIdOf(`svc_live_${index}`, null));
      const keys = ids.map((lookup_id, index) => ({
        ...{
          key_id: `key_${index}`,
          merchant_id: `m_${Math.floor(index / 100)}`,
          lookup_id,
          environment: 'live' as const,
        },
        ...{ status: 'ACTIVE', permissions: '["*"]', label: null, expires_at: null, ...moments },
      }));
      for (let at = 0; at < merchants.length; at += rowsAtOnce)
        await database
          .insertInto('merchants')
          .values(merchants.slice(at, at + rowsAtOnce))
          .execute();
      for (let at = 0; at < keys.length; at += rowsAtOnce)
        await database
          .insertInto('api_keys')
          .values(keys.slice(at, at + rowsAtOnce))
          .execute();
      return ids;
    },
    /** Opens the record reader of a gateway. */
    gateway: (instanceId: string) => {
      const reported: string[][] = [];
      const records = new RedisRecords({
        address,
        prefix: 'mg:',
        cache: {
          ...{
            maxEntries: 100_000,
            maxAgeMilliseconds: 60_000,
            unknownMaxEntries: 10,
            unknownMaxAgeMilliseconds: 5_000,
          },
          maxStaleMilliseconds: 30_000,
        },
        identity: {
          instanceId,
          environment: 'live',
          host: 'test',
          version: '1',
          startedAt: '2026-01-01T00:00:00.000Z',
        },
        clock: systemClock,
        ...{ onMalformed: () => undefined, onLost: () => undefined, onFound: () => undefined },
        onPolicies: (policies) => reported.push([...policies]),
      });
      t.teardown(() => records.close());
      const store = new RecordKeyStore(records);
      return {
        ...{ records, reported },
        /** The decision about a key: `accepted`, the status of an inactive key, `401`, or `503` with the reason. */
        ask: async (lookupId: string): Promise<string> => {
          try {
            const { credential } = await store.find(lookupId);
            return credential === null ? '401' : credential.keyStatus === 'ACTIVE' ? 'accepted' : credential.keyStatus;
          } catch (error) {
            return `503 ${(error as Error).message}`;
          }
        },
        /** Resolves when the registry has allowed the gateway to cache records. */
        enrolled: () =>
          until(() => redis.client.exists(`mg:grant:${instanceId}`).then((count) => count > 0), 'a grant'),
      };
    },
  };
}

/** Waits for a condition. */
export async function until(holds: () => Promise<boolean> | boolean, what: string): Promise<void> {
  for (const end = Date.now() + 120_000; !(await holds());) {
    if (Date.now() > end) throw new Error(`never: ${what}`);
    await wait(10);
  }
}
