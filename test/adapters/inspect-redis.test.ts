import { readFileSync } from 'node:fs';
import t from 'tap';
import type { RedisAddress } from '../../src/adapters/redis/connection.js';
import { inspectRedis } from '../../src/adapters/redis/inspect/inspect-redis.js';
import { neededCommands } from '../../src/adapters/redis/inspect/rights.js';
import type { RedisUse } from '../../src/adapters/redis/inspect/rights.js';
import { makeCertificate } from '../edge/certificates.js';
import { freePort, startRedis, withoutRedis } from './redis-server.js';

const everything = { part: 'gateway', preloads: true, countsRequests: true, usesChannel: true } as const;
const nobody = { username: null, password: null, ca: null, commandTimeoutMilliseconds: 200 };
const alone = { sentinels: null, cluster: null, masterName: '' };

/** The findings for an address, each as `severity option: message`. */
async function findingsAt(
  address: Partial<RedisAddress>,
  use: Omit<RedisUse, 'isCluster' | 'asksReplicas'> = everything,
) {
  const whole: RedisAddress = { ...nobody, ...alone, url: 'redis://127.0.0.1:1', ...address };
  const found = await inspectRedis({ address: whole, prefix: 'mg:', use });
  return found.map(({ severity, option, message }) => `${severity} ${option}: ${message}`);
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
    startRedis(t, ['user default off', 'user gateway on >right ~* &* +@all']),
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
    [{ url: `rediss://127.0.0.1:${secure.port}`, ca }, /redis\.url: .* its certificate is for another host name/],
    [{ url: `redis://127.0.0.1:${closed}` }, /redis\.url: .* connection refused/],
    [{ url: 'redis://nowhere.invalid' }, /redis\.url: .* (?:host name not found|DNS lookup failed)/],
    [{ url: `${open.url}/99` }, /redis\.url: Redis at \S+ has no database 99/],
    [
      { cluster: [{ host: '127.0.0.1', port: open.port }] },
      /redis\.cluster: .* is a single server, not a Cluster node/,
    ],
  ];
  for (const [address, said] of cases) {
    const found = await findingsAt(address);
    t.equal(found.length, 1, found.join('\n'));
    t.match(found[0], said);
  }
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
    [/^warning keyStore\.redis\.sentinel\.servers: the sentinel at \S+: connection refused/],
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

/** The ACL rights in a paragraph of the document. */
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
