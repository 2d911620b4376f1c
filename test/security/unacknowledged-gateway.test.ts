import { mkdir } from 'node:fs/promises';
import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { RedisRecords } from '../../src/adapters/redis/gateway/redis-records.js';
import { lookupIdOf } from '../../src/gateway/api-key.js';
import { keyStatus } from '../adapters/key-status.js';
import { freePort, startRedis, withoutRedis } from '../adapters/redis-server.js';
import type { RedisServer, Teardown } from '../adapters/redis-server.js';
import { liveKey, recordsOf } from '../edge/harness.js';

const lookupId = lookupIdOf(liveKey, null);
const maxStaleMilliseconds = 1_000;

const settings = {
  maxEntries: 10,
  maxAgeMilliseconds: 60_000,
  unknownMaxEntries: 10,
  unknownMaxAgeMilliseconds: 5_000,
};
const nowhere = { sentinels: null, masterName: '', cluster: null, username: null, password: null, ca: null };

/** The records of a gateway, and what is said of a key by them. */
function open(t: Teardown, { url }: RedisServer) {
  const records = new RedisRecords({
    address: { ...nowhere, url, commandTimeoutMilliseconds: 1_000 },
    prefix: 'mg:',
    cache: { ...settings, maxStaleMilliseconds },
    identity: { instanceId: 'g', environment: 'live', host: 'test', startedAt: '2026-01-01T00:00:00.000Z' },
    clock: { now: () => Date.now() },
    ...{ onMalformed: () => undefined, onLost: () => undefined, onFound: () => undefined },
  });
  t.teardown(() => records.close());
  return { records, status: () => keyStatus(records, lookupId) };
}

async function startSeeded(t: Teardown): Promise<RedisServer> {
  const server = await startRedis(t);
  for (const [name, record] of Object.entries(recordsOf(liveKey))) {
    await server.client.set(name, JSON.stringify(record));
  }
  return server;
}

async function until(holds: () => Promise<boolean>, what: string): Promise<void> {
  for (const end = Date.now() + 15_000; !(await holds());) {
    if (Date.now() > end) throw new Error(`never: ${what}`);
    await wait(20);
  }
}

type Change = (server: RedisServer) => Promise<unknown>;

const replaced: Record<string, [refuse: Change, allow: Change]> = {
  'was demoted': [
    async ({ client }) => client.replicaof('127.0.0.1', String(await freePort())),
    ({ client }) => client.replicaof('NO', 'ONE'),
  ],
  'was cut off from its replicas': [
    ({ client }) => client.config('SET', 'min-replicas-to-write', '1'),
    ({ client }) => client.config('SET', 'min-replicas-to-write', '0'),
  ],
};

// The acknowledgement had expired there, so a revocation elsewhere was answered with nothing pending; and the gateway went on
// asking the one that it was connected to, without end.
for (const [what, [refuse, allow]] of Object.entries(replaced)) {
  t.test(`a server that ${what} is believed for as long as is allowed`, { skip: withoutRedis }, async (t) => {
    const server = await startSeeded(t);
    const { records, status } = open(t, server);
    await until(async () => (await status()) === 'ACTIVE (cache)', 'ready');
    await refuse(server);
    await wait(maxStaleMilliseconds + 2_000);
    for (let count = 0; count < 20; count += 1) {
      t.equal(await status(), 'KeyStoreUnavailable');
      await wait(100);
    }
    t.match(records.unavailableReason(), 'takes no acknowledgements');
    t.equal(await server.client.exists('mg:gateway:g', `mg:key:${lookupId}`), 2, 'all the while it was waited for');
    await allow(server);
    await until(async () => (await status()) === 'ACTIVE (cache)', 'back by itself');
    t.equal(records.unavailableReason(), null);
  });
}

t.test('a gateway that starts on a demoted server decides nothing', { skip: withoutRedis }, async (t) => {
  const server = await startSeeded(t);
  await server.client.replicaof('127.0.0.1', String(await freePort()));
  const { records, status } = open(t, server);
  await until(() => Promise.resolve(records.unavailableReason() !== 'Redis does not answer'), 'asked');
  for (let count = 0; count < 20; count += 1) {
    t.equal(await status(), 'KeyStoreUnavailable');
    await wait(20);
  }
});

const full: Record<string, [refuse: Change, allow: Change]> = {
  'is out of memory': [
    ({ client }) => client.config('SET', 'maxmemory', '1'),
    ({ client }) => client.config('SET', 'maxmemory', '0'),
  ],
  'cannot save': [
    async ({ client }) => {
      const [, folder = ''] = await client.config('GET', 'dir');
      await mkdir(`${folder}/dump.rdb`); // a file cannot take its place
      await client.config('SET', 'save', '3600 1');
      await client.bgsave();
    },
    ({ client }) => client.config('SET', 'save', ''),
  ],
};

for (const [what, [refuse, allow]] of Object.entries(full)) {
  t.test(
    `a server that ${what} refuses the registry too, and goes on being asked`,
    { skip: withoutRedis },
    async (t) => {
      const server = await startSeeded(t);
      const { records, status } = open(t, server);
      await until(async () => (await status()) === 'ACTIVE (cache)', 'ready');
      await refuse(server);
      await until(async () => (await server.client.exists('mg:gateway:g')) === 0, 'the acknowledgement has expired');
      await t.rejects(server.client.set('mg:revision', '2'), 'nothing can be revoked');
      t.equal(await status(), 'ACTIVE (store)');
      t.equal(records.unavailableReason(), null);
      await allow(server);
      await until(async () => (await status()) === 'ACTIVE (cache)', 'held again');
    },
  );
}
