import { once } from 'node:events';
import { mkdirSync, readFileSync } from 'node:fs';
import net from 'node:net';
import type { AddressInfo } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import type { RedisAddress } from '../../src/adapters/redis/connection.js';
import { explainConnection } from '../../src/adapters/redis/inspect/failure.js';
import { inspectRedis } from '../../src/adapters/redis/inspect/inspect-redis.js';
import { neededCommands } from '../../src/adapters/redis/inspect/rights.js';
import type { RedisUse } from '../../src/adapters/redis/inspect/rights.js';
import { makeCertificate } from '../edge/certificates.js';
import { freePort, startRedis, withoutRedis } from './redis-server.js';

const everything = { part: 'gateway', preloads: true, countsRequests: true, usesChannel: true } as const;
const anonymous = { username: null, password: null, ca: null, commandTimeoutMilliseconds: 200 };
const alone = { sentinels: null, cluster: null, masterName: '' };

/** How often to inspect a server that seems silent. All servers of these tests respond, but late on a busy machine. */
const mostInspections = 5;

/** The findings for an address, each as `severity option: message`. */
async function findingsAt(
  address: Partial<RedisAddress>,
  use: Omit<RedisUse, 'isCluster' | 'asksReplicas'> = everything,
) {
  const whole: RedisAddress = { ...anonymous, ...alone, url: 'redis://127.0.0.1:1', ...address };
  for (let count = 1; ; count += 1) {
    const found = await inspectRedis({ address: whole, prefix: 'mg:', use });
    const isSilent = found.some(({ message }) => message.includes('does not respond'));
    if (!isSilent || count === mostInspections)
      return found.map(({ severity, option, message }) => `${severity} ${option}: ${message}`);
  }
}

t.test('a correctly configured Redis has no findings', { skip: withoutRedis }, async (t) => {
  const redis = await startRedis(t);
  t.same(await findingsAt({ url: redis.url }), []);
  t.same(await findingsAt({ url: `${redis.url}/3` }, { ...everything, part: 'registry' }), []);
  t.same(await redis.client.keys('*'), [], 'no key was left behind');
});

t.test('every obstacle to using Redis is named', { skip: withoutRedis }, async (t) => {
  const certificate = await makeCertificate();
  const [open, locked, secure] = await Promise.all([
    startRedis(t),
    startRedis(t, ['user default off', 'user gateway on >right ~* &* +@all', 'user few on >right ~* &* +@all -select']),
    startRedis(t, [], [], certificate),
  ]);
  const ca = Buffer.from(certificate.cert);
  const atSecure = `rediss://localhost:${secure.port}`;
  t.same(await findingsAt({ url: atSecure, ca }), []);
  const closed = await freePort();
  const cases: readonly (readonly [Partial<RedisAddress>, RegExp])[] = [
    [
      { url: locked.url, username: 'gateway', password: 'wrong' },
      /passwordFile: Redis at \S+ refuses the user or the password \(WRONGPASS\)/,
    ],
    [{ url: locked.url }, /passwordFile: Redis at \S+ requires a password \(NOAUTH\)/],
    [{ url: open.url, password: 'p' }, /^warning \S+passwordFile: Redis at \S+ has no password, so any client/],
    [
      { url: open.url.replace('redis:', 'rediss:') },
      /redis\.url: Redis at \S+ does not use TLS, but TLS is configured: write redis:/,
    ],
    [
      { url: `redis://127.0.0.1:${secure.port}` },
      /redis\.url: Redis at \S+ uses TLS, but TLS is not configured: write rediss:/,
    ],
    [{ url: atSecure }, /redis\.caFile: .* is not signed by a trusted CA/],
    [{ url: `rediss://127.0.0.1:${secure.port}`, ca }, /redis\.url: the certificate of .* is for another host name/],
    [{ url: `redis://127.0.0.1:${closed}` }, /redis\.url: .* refused the connection/],
    [{ url: 'redis://nowhere.invalid' }, /redis\.url: .* (?:has an unknown host name|cannot be found)/],
    [{ url: `${open.url}/99` }, /redis\.url: Redis at \S+ has no database 99/],
    [
      { url: `${locked.url}/3`, username: 'few', password: 'right' },
      /^error keyStore\.redis\.url: the user is not allowed to use database 3 of Redis at \S+: grant the user the right \+select/,
    ],
    [
      { cluster: [{ host: '127.0.0.1', port: open.port }] },
      /redis\.cluster: .* is a single server, not a Cluster node/,
    ],
  ];
  for (const [address, expected] of cases) {
    const found = await findingsAt(address);
    t.equal(found.length, 1, found.join('\n'));
    t.match(found[0], expected);
  }
});

t.test('a server that cannot save is not called unreachable', { skip: withoutRedis }, async (t) => {
  const { client, url } = await startRedis(t);
  const [, folder = ''] = await client.config('GET', 'dir');
  mkdirSync(`${folder}/dump.rdb`); // Redis cannot replace a directory with its file
  await client.config('SET', 'save', '3600 1');
  await client.bgsave();
  while ((await client.set('x', '1').catch(() => null)) !== null) await wait(20);
  t.same(await findingsAt({ url }), []);
  await client.config('SET', 'save', '');
});

t.test('TLS is recognised on a server with a slow handshake', { skip: withoutRedis }, async (t) => {
  const secure = await startRedis(t, [], [], await makeCertificate());
  const slow = net.createServer((client) => {
    const server = net.connect(secure.port, '127.0.0.1');
    client.on('error', () => undefined).on('data', (chunk) => server.write(chunk));
    server.on('error', () => undefined).on('close', () => client.destroy());
    server.on('data', (chunk) => setTimeout(() => client.write(chunk), 2_000));
    client.on('close', () => server.destroy());
  });
  await once(slow.listen(0, '127.0.0.1'), 'listening');
  t.teardown(() => slow.close());
  const { port } = slow.address() as AddressInfo;
  const [found] = await findingsAt({ url: `redis://127.0.0.1:${port}` });
  t.match(found, /uses TLS, but TLS is not configured/);
});

t.test('a server that is not a master is named by its kind', { skip: withoutRedis }, async (t) => {
  const master = await startRedis(t);
  const [replica, sentinel, node] = await Promise.all([
    startRedis(t, [`replicaof 127.0.0.1 ${master.port}`]),
    startRedis(t, [`sentinel monitor mymaster 127.0.0.1 ${master.port} 1`], ['--sentinel']),
    startRedis(t, ['cluster-enabled yes']),
  ]);
  t.match(await findingsAt({ url: replica.url }), [/redis\.url: .* is a replica and refuses writes/]);
  t.match(await findingsAt({ url: sentinel.url }), [
    /redis\.url: .* is a sentinel: name it in keyStore\.redis\.sentinel\.servers/,
  ]);
  t.match(await findingsAt({ url: node.url }), [/redis\.url: .* is a node of a Cluster: name/]);
  const sentinels = [{ host: '127.0.0.1', port: sentinel.port }];
  t.same(await findingsAt({ sentinels, masterName: 'mymaster' }), []);
  t.match(await findingsAt({ sentinels, masterName: 'other' }), [
    /masterName: .* monitors no master "other"; it monitors: mymaster/,
  ]);
  const away = [...sentinels, { host: '127.0.0.1', port: await freePort() }];
  t.match(
    await findingsAt({ sentinels: away, masterName: 'mymaster' }),
    [/^warning keyStore\.redis\.sentinel\.servers: the sentinel at \S+ refused the connection/],
    'the other sentinels name the master',
  );
});

t.test('wrong sentinel credentials are not reported as wrong Redis credentials', { skip: withoutRedis }, async (t) => {
  const master = await startRedis(t);
  const sentinel = await startRedis(
    t,
    [`sentinel monitor mymaster 127.0.0.1 ${master.port} 1`, 'requirepass of-sentinels'],
    ['--sentinel'],
  );
  const at = { sentinels: [{ host: '127.0.0.1', port: sentinel.port }], masterName: 'mymaster' };
  const access = (password: string | null, isSecure = false) => ({
    ...at,
    sentinelAccess: { username: null, password, isSecure },
  });
  t.same(await findingsAt(access('of-sentinels')), []);
  t.match(await findingsAt(access('wrong')), [
    /sentinel\.passwordFile: the sentinel at \S+ refuses the user or the password/,
  ]);
  t.match(await findingsAt(access(null)), [/sentinel\.passwordFile: the sentinel at \S+ requires a password/]);
  t.match(await findingsAt(access('of-sentinels', true)), [
    /sentinel\.tls: .* does not use TLS, .* set keyStore\.redis\.sentinel\.tls to false/,
  ]);
});

const records = readFileSync('docs/records.md', 'utf8');

/** The ACL rights in a paragraph of docs/records.md. */
function documented(paragraph: RegExp): string[] {
  return [...(paragraph.exec(records)?.[0] ?? '').matchAll(/\+([a-z|]+)/g)].map(([, right = '']) => right);
}

t.test('the documented rights are exactly those inspected', (t) => {
  const needed = (use: Partial<RedisUse>): string[] =>
    [...neededCommands({ ...everything, isCluster: false, asksReplicas: true, ...use }), 'subscribe'].toSorted();
  const gateway = documented(/^The rights that a gateway needs[^]*?\n\n/m);
  t.same([...new Set(gateway)].toSorted(), needed({}));
  const registry = documented(/^The registry's user needs[^]*?\n\n/m);
  t.same([...new Set(registry)].toSorted(), needed({ part: 'registry' }));
  const inCluster = documented(/^In a Cluster gateways and registry both need[^]*?\n\n/m);
  const added = (part: 'gateway' | 'registry') =>
    needed({ part, isCluster: true }).filter((right) => !needed({ part }).includes(right));
  t.same(
    added('registry'),
    [...new Set(inCluster)].toSorted().filter((right) => !registry.includes(right)),
  );
  t.same(
    added('gateway'),
    [...new Set(inCluster)].toSorted().filter((right) => !gateway.includes(right) && right !== 'zadd'),
  );
  t.end();
});

t.test('the runbook names exactly the rights that an upgrade from 0.1.0 adds', (t) => {
  const ofBoth = ['get', 'set', 'eval', 'ping', 'select', 'client|id', 'client|tracking'];
  const former = {
    gateway: [...ofBoth, 'del', 'pexpire', 'info', 'evalsha', 'time'],
    registry: [...ofBoth, 'del', 'scan', 'mget'],
  };
  const added = (['gateway', 'registry'] as const).flatMap((part) =>
    neededCommands({ ...everything, part, isCluster: false, asksReplicas: true }).filter(
      (right) => !former[part].includes(right),
    ),
  );
  const [row = ''] = /^- \*\*Redis users\*\*[^]*?\n(?! )/m.exec(readFileSync('docs/operations.md', 'utf8')) ?? [];
  const named = Array.from(row.matchAll(/\+([a-z|]+)/g), ([, right = '']) => right);
  t.same([...new Set(named)].toSorted(), [...new Set(added)].toSorted());
  t.end();
});

t.test('exactly the missing rights are named', { skip: withoutRedis }, async (t) => {
  const redis = await startRedis(t);
  for (const part of ['gateway', 'registry'] as const) {
    const use = { ...everything, part };
    const needed = [...neededCommands({ ...use, isCluster: false, asksReplicas: true }), 'subscribe'];
    const rights = ['~mg:*', '&__redis__:invalidate', ...needed.map((command) => `+${command}`)];
    // All rights, including those for querying replicas.
    const at = { url: redis.url, username: part, password: 'p', replicas: 1 };
    for (const left of [null, ...rights]) {
      await redis.client.call('ACL', 'SETUSER', part, 'reset', 'on', '>p', ...rights.filter((right) => right !== left));
      const found = await findingsAt(at, use);
      if (left === null) t.same(found, [], part);
      else
        t.match(found, [
          new RegExp(
            `^warning keyStore.redis.username: the user "${part}" of Redis lacks rights .*: ACL SETUSER ${part} ${left.replaceAll(/[+~&*|.]/g, '\\$&')}$`,
          ),
        ]);
    }
  }
});

t.test('a certificate that has expired has another remedy than one that is not valid yet', async (t) => {
  const messageOf = async (code: string) => {
    const options = { place: 'place', password: 'password', secure: 'tls' };
    const whose = { what: 'Redis', at: { host: 'localhost', port: 1 }, isSecure: true, options };
    return (await explainConnection(Object.assign(new Error(code), { code }), whose)).message;
  };
  t.match(await messageOf('CERT_HAS_EXPIRED'), /the certificate of Redis has expired: renew it/);
  t.match(
    await messageOf('CERT_NOT_YET_VALID'),
    /the certificate of Redis is not valid yet: replace it, or correct the clock/,
  );
});
