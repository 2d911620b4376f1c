import { generate } from 'selfsigned';
import t, { type Test } from 'tap';
import { openRecordsStore } from '../../src/adapters/redis/registry/open-records-store.js';
import { RedisRecords } from '../../src/adapters/redis/gateway/redis-records.js';
import { until, startCluster } from './redis-cluster.js';
import { startRedis, withoutRedis } from './redis-server.js';
import type { ServerCertificate, Teardown } from './redis-server.js';

type AltName = { type: 2; value: string } | { type: 7; ip: string };

/** A self-signed CA certificate; the nodes of a Cluster use it as client certificate too. */
async function createCertificate(altNames: AltName[]): Promise<ServerCertificate> {
  const { cert, private: key } = await generate([{ name: 'commonName', value: 'redis' }], {
    keyType: 'ec',
    curve: 'P-256',
    algorithm: 'sha256',
    notBeforeDate: new Date(Date.now() - 60_000),
    extensions: [
      { name: 'basicConstraints', cA: true, critical: true },
      { name: 'extKeyUsage', serverAuth: true, clientAuth: true },
      { name: 'subjectAltName', altNames },
    ],
  });
  return { cert, key };
}

interface Target {
  readonly url: string;
  readonly cluster: readonly { host: string; port: number }[] | null;
}

/** Gateway and registry side of a Redis over TLS, and the outages that they reported. */
function open(t: Teardown, target: Target, ca: string) {
  const address = {
    ...{ ...target, sentinels: null, masterName: '', username: null, password: null, ca: Buffer.from(ca) },
    commandTimeoutMilliseconds: 2_000,
  };
  const reported: string[] = [];
  const events = { onLost: ({ message }: Error) => reported.push(message), onFound: () => undefined };
  const store = openRecordsStore(address, 'mg:', events);
  const records = new RedisRecords({
    ...{ address, prefix: 'mg:', clock: { now: () => Date.now() }, onMalformed: () => undefined, ...events },
    cache: {
      ...{ maxEntries: 9, maxAgeMilliseconds: 9e5, unknownMaxEntries: 9, unknownMaxAgeMilliseconds: 9e5 },
      maxStaleMilliseconds: 0,
    },
    identity: { instanceId: 'tls', environment: 'live', host: 'h', startedAt: '2026-01-01T00:00:00.000Z' },
  });
  t.teardown(() => store.close());
  t.teardown(() => records.close());
  return { store, records, reported };
}

const meta = { version: 1, generation: 'g', projectedAt: '2026-01-01T00:00:00.000Z' } as const;

async function works(t: Teardown, target: Target, ca: string): Promise<void> {
  const { store, records } = open(t, target, ca);
  await until(async () => (await store.snapshot()).meta === null, 'the registry has a connection');
  await store.begin();
  await store.complete(meta, { revision: 3, change: 'c' });
  await until(async () => (await records.key('unknown')).source === 'cache', 'the gateway reads and tracks');
  await until(
    async () => (await store.gateways([])).gateways[0]?.acknowledgement?.revision === 3,
    'the gateway acknowledges',
  );
}

async function isRefused(t: Test, target: Target, ca: string, reason: RegExp): Promise<void> {
  const { store, records, reported } = open(t, target, ca);
  await until(() => Promise.resolve(reported.length >= 2), 'both sides report the reason');
  for (const one of reported) t.match(one, reason);
  await t.rejects(store.snapshot());
  await t.rejects(async () => records.key('unknown'), { name: 'KeyStoreUnavailable' });
}

t.test('a Redis server must prove its identity with its certificate', { skip: withoutRedis }, async (t) => {
  const right = await createCertificate([
    { type: 2, value: 'localhost' },
    { type: 7, ip: '127.0.0.1' },
  ]);
  const other = await createCertificate([{ type: 7, ip: '127.0.0.1' }]);
  const server = await startRedis(t, [], [], right);
  const target = { url: server.url, cluster: null };
  await t.test('it works with the CA of its certificate', (t) => works(t, target, right.cert));
  await t.test('it is refused with another CA', (t) =>
    isRefused(t, target, other.cert, /self-signed certificate|unable to verify/),
  );
  const named = await createCertificate([{ type: 2, value: 'localhost' }]);
  const misnamed = await startRedis(t, [], [], named);
  await t.test('a certificate for another name is refused', (t) =>
    isRefused(t, { url: misnamed.url, cluster: null }, named.cert, /IP: 127\.0\.0\.1 is not in the cert's list/),
  );
});

t.test(
  'a second error of one socket stops neither the process nor the reconnection',
  { skip: withoutRedis },
  async (t) => {
    const { client } = await startRedis(t);
    await client.connect();
    for (const message of ['error of one address', 'error of another address']) {
      t.doesNotThrow(() => client.stream.emit('error', new Error(message)), message);
    }
    t.equal(await client.ping(), 'PONG');
  },
);

t.test('each node of a Cluster must prove the host name that it announces', { skip: withoutRedis }, async (t) => {
  const certificate = await createCertificate([{ type: 2, value: 'localhost' }]);
  const other = await createCertificate([{ type: 2, value: 'localhost' }]);
  const cluster = await startCluster(t, {
    ...{ masters: 2, replicas: false, certificate },
    settings: ['cluster-announce-hostname localhost'],
  });
  const target = (host: string): Target => ({
    url: 'rediss://ignored:1',
    cluster: cluster.nodes.map(({ port }) => ({ host, port })),
  });
  await t.test('it works with the CA of its certificates', (t) => works(t, target('localhost'), certificate.cert));
  await t.test('it is refused with another CA', (t) =>
    isRefused(t, target('localhost'), other.cert, /self-signed certificate|unable to verify/),
  );
  await t.test('a certificate for another name is refused', (t) =>
    isRefused(t, target('127.0.0.1'), certificate.cert, /IP: 127\.0\.0\.1 is not in the cert's list/),
  );
  await Promise.all(cluster.nodes.map(({ client }) => client.config('SET', 'cluster-announce-hostname', '')));
  await until(async () => {
    const seen = await Promise.all(
      cluster.nodes.map(async ({ client }) => String(await client.call('CLUSTER', 'NODES'))),
    );
    return !seen.some((text) => text.includes('localhost'));
  }, 'no host name is announced');
  await t.test('without an announced name each node must prove its address, which this certificate lacks', (t) =>
    isRefused(t, target('localhost'), certificate.cert, /IP: 127\.0\.0\.1 is not in the cert's list/),
  );
});
