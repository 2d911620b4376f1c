import { readFile } from 'node:fs/promises';
import t from 'tap';
import type { RedisAddress } from '../../src/adapters/redis/connection.js';
import { RedisRate } from '../../src/adapters/redis/redis-rate.js';
import type { RedisRateOptions } from '../../src/adapters/redis/redis-rate.js';
import type { TokenTake } from '../../src/gateway/ports.js';
import { startCluster, until } from './redis-cluster.js';
import { startRedis, withoutRedis } from './redis-server.js';
import type { Teardown } from './redis-server.js';

const name = 'mg:rate:live:m_1';
const toRedis: RedisAddress = {
  ...{
    url: 'redis://127.0.0.1',
    sentinels: null,
    cluster: null,
    masterName: '',
    username: null,
    password: null,
    ca: null,
  },
  commandTimeoutMilliseconds: 10_000,
};

/** A rate limit with a clock that only the test advances, and the outages that the limit reported. */
function open(t: Teardown, address: Partial<RedisAddress>, options: Partial<RedisRateOptions> = {}) {
  const reported: string[] = [];
  const time = { now: 0 };
  const rate = new RedisRate({
    address: { ...toRedis, ...address },
    // Adds one token in 100 s by the clock of Redis, so that a stall of the machine adds none.
    ...{ prefix: 'mg:', environment: 'live', requestsPerSecond: 0.01, burst: 3 },
    ...{ waitMilliseconds: 5_000, now: () => time.now },
    onLost: ({ message }) => reported.push(`lost: ${message}`),
    onFound: () => reported.push('found'),
    ...options,
  });
  t.teardown(() => rate.close());
  return { rate, reported, time };
}

/** Opens a rate limit and waits until it counts requests of a merchant that no other test uses. */
async function openReady(...args: Parameters<typeof open>) {
  const opened = open(...args);
  const { rate, reported, time } = opened;
  await until(async () => {
    time.now += 10_000;
    return (await rate.take('somebody')) !== null;
  }, 'it counts');
  reported.length = 0;
  return opened;
}

/**
 * By how many milliseconds a poll within an outage advances the clock. An outage ends after 5,000 ms without a failure.
 * With 500 per poll, ten polls without a failure would end the outage, although they take only 100 ms in reality.
 */
const whilePolling = 5;

const short = (take: TokenTake | null): string =>
  take === null ? 'not counted' : `${take.taken ? 'yes' : 'no'} ${Math.floor(take.tokens)}`;

/** The ACL rights that docs/records.md lists after these words. */
async function rightsAfter(words: string): Promise<string[]> {
  const text = (await readFile('docs/records.md', 'utf8')).replaceAll('\n', ' ');
  const [rights = ''] = (text.split(words)[1] ?? '').split('`');
  return rights.split(' ').filter((right) => right !== '');
}

t.test('merchants counted in a real Redis', { skip: withoutRedis }, async (t) => {
  const server = await startRedis(t);
  const { client, url } = server;
  const microseconds = async (): Promise<number> => {
    const [seconds, rest] = await client.time();
    return Number(seconds) * 1_000_000 + Number(rest);
  };
  t.beforeEach(() => client.flushall());

  t.test('gateways share one bucket, whose key expires when the bucket would be full again', async (t) => {
    const [one, other] = [await openReady(t, { url }), await openReady(t, { url })];
    const takes = [one, other, one, other].map(async ({ rate }) => rate.take('m_1'));
    t.same((await Promise.all(takes)).map(short).toSorted(), ['no 0', 'yes 0', 'yes 1', 'yes 2']);
    const left = await client.pttl(name);
    t.ok(left > 200_000 && left <= 300_000, `${left} ms`);
    t.equal(short(await one.rate.take('m_2')), 'yes 2', 'other merchants are not delayed');
  });

  t.test('concurrent takes on many connections never take a token twice', async (t) => {
    const options = { burst: 20 };
    const rates = [await openReady(t, { url }, options), await openReady(t, { url }, options)];
    const takes = await Promise.all(
      Array.from({ length: 200 }, async (_, count) => rates[count % 2]?.rate.take('m_1')),
    );
    t.equal(takes.filter((take) => take?.taken).length, 20);
    t.equal(takes.filter((take) => take === null).length, 0);
  });

  t.test('the bucket refills by the clock of Redis, and never above its size', async (t) => {
    const { rate } = await openReady(t, { url });
    await client.set(name, `0 ${(await microseconds()) - 100_000_000}`);
    t.same([short(await rate.take('m_1')), short(await rate.take('m_1'))], ['yes 0', 'no 0']);
    await client.set(name, `0.25 ${(await microseconds()) - 3_600_000_000}`);
    t.equal(short(await rate.take('m_1')), 'yes 2');
  });

  t.test(
    'a clock that was set back neither adds tokens nor blocks a merchant until it has caught up again',
    async (t) => {
      const { rate } = await openReady(t, { url });
      await client.set(name, `0 ${(await microseconds()) + 3_600_000_000}`);
      t.equal(short(await rate.take('m_1')), 'no 0');
      const [, filledAt = ''] = ((await client.get(name)) ?? '').split(' ');
      t.ok(Number(filledAt) <= (await microseconds()), 'it refills from now on');
      const left = await client.pttl(name);
      t.ok(left > 200_000 && left <= 300_000, `${left} ms`);
    },
  );

  t.test('changed limits apply to existing buckets, and a malformed bucket counts as full', async (t) => {
    const { rate } = await openReady(t, { url }, { burst: 2 });
    await client.set(name, `50 ${await microseconds()}`);
    t.equal(short(await rate.take('m_1')), 'yes 1');
    await client.set(name, 'whatever');
    t.equal(short(await rate.take('m_1')), 'yes 1');
  });

  t.test('deployments and environments on one Redis are separate', async (t) => {
    const limits = { burst: 1 };
    const { rate } = await openReady(t, { url }, limits);
    t.equal(short(await rate.take('m_1')), 'yes 0');
    t.equal(short(await rate.take('m_1')), 'no 0');
    t.equal(short(await (await openReady(t, { url }, { ...limits, prefix: 'other:' })).rate.take('m_1')), 'yes 0');
    t.equal(short(await (await openReady(t, { url }, { ...limits, environment: 'test' })).rate.take('m_1')), 'yes 0');
    const names = (await client.keys('*:m_1')).toSorted();
    t.same(names, ['mg:rate:live:m_1', 'mg:rate:test:m_1', 'other:rate:live:m_1']);
  });

  t.test('the documented rights suffice, and a missing one is reported', async (t) => {
    const rights = await rightsAfter('on one server: `');
    const more = await rightsAfter('With `rateLimit.shared` it needs these as well: `');
    t.ok(rights.length > 10 && more.length > 0);
    await client.call('ACL', 'SETUSER', 'counts', 'on', '>secret', 'resetkeys', '~mg:*', ...rights, ...more);
    await client.call('ACL', 'SETUSER', 'reads', 'on', '>secret', 'resetkeys', '~mg:*', ...rights);
    const { rate, reported } = await openReady(t, { url, username: 'counts', password: 'secret' });
    t.equal(short(await rate.take('m_1')), 'yes 2');
    await client.script('FLUSH');
    t.equal(short(await rate.take('m_1')), 'yes 1', 'a script that Redis no longer has is loaded again');
    t.same(reported, []);
    const without = open(t, { url, username: 'reads', password: 'secret' });
    await until(
      async () => (await without.rate.take('m_1')) === null && without.reported.length > 0,
      'the outage is reported',
    );
    t.equal(without.reported.length, 1);
    t.match(without.reported[0], /^lost: .*can't run this command/);
  });

  t.test('a read-only replica counts nothing', async (t) => {
    const replica = await startRedis(t, [`replicaof 127.0.0.1 ${server.port}`]);
    const { rate, reported } = open(t, { url: replica.url });
    await until(async () => (await rate.take('m_1')) === null && reported.length > 0, 'the outage is reported');
    t.match(reported[0], /^lost: .*READONLY/);
  });

  t.test('only the first requests wait for a hung Redis', async (t) => {
    const { rate, reported, time } = await openReady(t, { url }, { waitMilliseconds: 50 });
    server.signal('SIGSTOP');
    t.teardown(() => {
      server.signal('SIGCONT');
    });
    const startedAt = performance.now();
    const waiting = [rate.take('m_1'), rate.take('m_2')];
    t.ok(waiting.every((take) => take instanceof Promise));
    t.same(await Promise.all(waiting.map(async (take) => take)), [null, null]);
    const waited = performance.now() - startedAt;
    t.ok(waited < 6_000, `${waited} ms, of a commandTimeoutMilliseconds of ten seconds`);
    t.same(reported, ['lost: no reply within 50 ms']);
    time.now += 499;
    t.equal(rate.take('m_1'), null, 'at once');
    server.signal('SIGCONT');
    await until(async () => (await client.get(name)) !== null, 'the pending command is executed');
    t.equal(rate.take('m_1'), null, 'a late reply does not end the outage');
    time.now += 1;
    const before = await client.get(name);
    const later = Array.from({ length: 100 }, () => rate.take('m_1'));
    t.ok(
      later.every((take) => take === null),
      'at once, although one of them probes Redis',
    );
    await until(async () => (await client.get(name)) !== before, 'one request has probed');
    t.equal((await client.get(name))?.startsWith('0'), false, 'only one request probes');
    await until(async () => {
      time.now += 500;
      return (await rate.take('m_1')) !== null;
    }, 'it counts again');
    t.equal(reported.length, 1, 'recovery is reported only after a healthy period');
    await until(async () => {
      time.now += 5_000;
      return (await rate.take('m_1')) !== null; // null if Redis replies late on a busy machine
    }, 'it still counts');
    t.same(reported, ['lost: no reply within 50 ms', 'found']);
  });

  t.test('intermittent failures are one outage, not many', async (t) => {
    const { rate, reported, time } = await openReady(t, { url });
    await client.lpush(name, 'no text');
    for (let count = 0; count < 5; count += 1) {
      t.equal(await rate.take('m_1'), null);
      time.now += 500;
      await until(async () => {
        time.now += whilePolling;
        return (await rate.take('m_2')) !== null;
      }, 'other merchants are counted');
    }
    t.equal(reported.length, 1, reported.join());
    t.match(reported[0], /^lost: .*WRONGTYPE/);
  });

  t.test('a lost Redis is reconnected, empty and with full buckets', async (t) => {
    const { rate, reported, time } = await openReady(t, { url });
    for (let count = 0; count < 4; count += 1) await rate.take('m_1');
    await server.kill();
    await until(() => Promise.resolve(reported.length === 1), 'the outage is reported');
    t.equal(rate.take('m_1'), null, 'at once');
    await server.restart();
    await until(async () => {
      time.now += 500;
      return (await rate.take('m_2')) !== null;
    }, 'it counts again');
    t.equal(short(await rate.take('m_1')), 'yes 2');
    time.now += 5_000;
    await rate.take('m_1');
    t.equal(reported.length, 2);
    t.equal(reported[1], 'found');
  });

  t.test('before it is connected no request waits, and no outage is reported', (t) => {
    const { rate, reported } = open(t, { url });
    t.equal(rate.take('m_1'), null);
    t.same(reported, []);
    t.end();
  });
});

t.test('merchants counted in a Redis Cluster', { skip: withoutRedis }, async (t) => {
  const cluster = await startCluster(t, { replicas: false, settings: ['cluster-require-full-coverage no'] });
  const rights = [...(await rightsAfter('on one server: `')), ...(await rightsAfter('besides those above: `'))];
  const more = await rightsAfter('With `rateLimit.shared` it needs these as well: `');
  for (const { client } of cluster.nodes) {
    await client.call('ACL', 'SETUSER', 'counts', 'on', '>secret', 'resetkeys', '~mg:*', ...rights, ...more);
  }
  const address = {
    cluster: cluster.nodes.map(({ port }) => ({ host: '127.0.0.1', port })),
    ...{ username: 'counts', password: 'secret' },
  };

  await t.test('each merchant at the master of its key, with the documented rights', async (t) => {
    const [one, other] = [await openReady(t, address), await openReady(t, address)];
    const merchants = Array.from({ length: 12 }, (_, count) => `m_${count}`);
    const owners = new Set<string>();
    for (const id of merchants) {
      const takes = [
        await one.rate.take(id),
        await other.rate.take(id),
        await one.rate.take(id),
        await other.rate.take(id),
      ];
      t.same(takes.map(short), ['yes 2', 'yes 1', 'yes 0', 'no 0'], id);
      const owner = await cluster.ownerOf(`mg:rate:live:${id}`);
      t.equal(await owner.client.exists(`mg:rate:live:${id}`), 1);
      owners.add(owner.id);
    }
    t.ok(owners.size > 1, `${owners.size} masters`);
  });

  await t.test('its masters are connected before the first take', async (t) => {
    const user = { username: 'early', password: 'secret' };
    for (const { client } of cluster.nodes) {
      await client.call('ACL', 'SETUSER', 'early', 'on', '>secret', 'resetkeys', '~mg:*', ...rights, ...more);
    }
    const { rate } = open(t, { ...address, ...user });
    await until(async () => {
      const lists = await Promise.all(cluster.nodes.map(({ client }) => client.client('LIST')));
      return lists.every((list) => String(list).includes('user=early'));
    }, 'each master has a connection');
    t.ok(rate);
  });

  await t.test('a lost master delays only its own merchants, and is one outage', async (t) => {
    const { rate, reported, time } = await openReady(t, address, { waitMilliseconds: 200 });
    const lost = await cluster.ownerOf('mg:rate:live:m_1');
    const others = Array.from({ length: 20 }, (_, count) => `other_${count}`);
    let living = '';
    for (const id of others) if ((await cluster.ownerOf(`mg:rate:live:${id}`)).id !== lost.id) living = id;
    await until(async () => {
      time.now += 5_000; // so that a late reply to the first take leaves no outage open
      return (await rate.take('m_1')) !== null;
    }, 'its master counts');
    reported.length = 0;
    await lost.kill();
    for (let count = 0; count < 3; count += 1) {
      time.now += 500;
      await until(async () => {
        time.now += whilePolling;
        return (await rate.take('m_1')) === null;
      }, 'its merchants are not counted');
      time.now += 500;
      await until(async () => {
        time.now += whilePolling;
        return (await rate.take(living)) !== null;
      }, 'other merchants are counted');
    }
    t.equal(reported.length, 1, reported.join());
    t.match(reported[0], /^lost: /);
  });
});
