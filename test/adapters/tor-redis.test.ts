import { readFile } from 'node:fs/promises';
import { setTimeout } from 'node:timers/promises';
import t from 'tap';
import type { RedisAddress } from '../../src/adapters/redis/connection.js';
import { RedisExitLists } from '../../src/adapters/redis/redis-exit-lists.js';
import { address } from '../policy/fixtures.js';
import { startRedis, withoutRedis } from './redis-server.js';
import type { RedisServer } from './redis-server.js';
import { content, hour, TestWorld } from './tor-maintenance-fixture.js';

interface Teardown {
  teardown(handler: () => unknown): void;
}

function open(t: Teardown, { url }: RedisServer, prefix = 'mg:', user: string | null = null): RedisExitLists {
  const where: RedisAddress = {
    ...{ url, sentinels: null, cluster: null, masterName: '', username: user, password: user, ca: null },
    commandTimeoutMilliseconds: 10,
  };
  const lists = new RedisExitLists(where, prefix, () => undefined);
  t.teardown(() => lists.close());
  return lists;
}

t.test('the Tor exit list of a cluster in a real Redis', { skip: withoutRedis }, async (t) => {
  const server = await startRedis(t);
  t.beforeEach(() => server.client.flushall());

  t.test('one process has the claim, which expires, and releases it', async (t) => {
    const [one, other] = [open(t, server), open(t, server)];
    const claim = await one.claim();
    t.ok(claim);
    t.equal(await other.claim(), null);
    const left = await server.client.pttl('mg:tor-exits:lock');
    t.ok(left > 0 && left <= 60_000, `${left} ms`);
    t.equal(await claim?.publish('{"a":1}'), true);
    t.equal(await server.client.get('mg:tor-exits'), '{"a":1}');
    t.equal(await other.read(), '{"a":1}');
    await claim?.release();
    t.equal(await server.client.exists('mg:tor-exits:lock'), 0);
    t.ok(await other.claim());
  });

  t.test('a process that lost the claim neither writes nor takes it from its new holder', async (t) => {
    const [one, other] = [open(t, server), open(t, server)];
    const lost = await one.claim();
    await server.client.del('mg:tor-exits:lock');
    t.equal(await lost?.publish('old'), false);
    const held = await other.claim();
    t.equal(await lost?.publish('old'), false);
    await lost?.release();
    t.equal(await server.client.exists('mg:tor-exits:lock'), 1, 'the new claim is unchanged');
    t.equal(await held?.publish('new'), true);
    t.equal(await server.client.get('mg:tor-exits'), 'new');
  });

  t.test('deployments on one Redis are separated by their prefix', async (t) => {
    const [one, other] = [open(t, server), open(t, server, 'other:')];
    const claim = await one.claim();
    await claim?.publish('{}');
    t.equal(await other.read(), null);
    t.ok(await other.claim());
  });

  t.test('the documented rights suffice', async (t) => {
    const [, rights = ''] =
      /The rights that a gateway needs, on one server: `([^`]+)`/.exec(await readFile('docs/records.md', 'utf8')) ?? [];
    await server.client.call('ACL', 'SETUSER', 'gateway', 'on', '>gateway', 'resetkeys', '~mg:*', ...rights.split(' '));
    const lists = open(t, server, 'mg:', 'gateway');
    t.equal(await lists.read(), null);
    const claim = await lists.claim();
    t.equal(await claim?.publish('{}'), true);
    await claim?.release();
    t.equal(await server.client.exists('mg:tor-exits:lock'), 0);
    await t.rejects(open(t, server, 'other:', 'gateway').read(), /NOPERM/);
  });

  t.test('a lost connection is an error, not "no list", and it recovers', async (t) => {
    const lists = open(t, server);
    const claim = await lists.claim();
    await server.kill();
    await t.rejects(lists.read());
    await t.rejects(lists.claim());
    await claim?.release();
    await server.restart();
    const deadline = Date.now() + 30_000;
    let read: string | null | Error = new Error('not asked');
    while (read instanceof Error && Date.now() < deadline) {
      await setTimeout(20);
      read = await lists.read().catch((error: unknown) => error as Error);
    }
    t.equal(read, null);
  });

  t.test('gateways over Redis: one fetches, all have the list, and a stopped fetcher is replaced', async (t) => {
    const world = new TestWorld();
    const url = 'https://a.test/list';
    world.responses.set(url, content(['198.51.100.9'], { etag: '"1"' }));
    const gateways = [1, 2].map(() => world.open(t.testdir(), { from: [url], shared: open(t, server) }));
    await Promise.all(gateways.map(({ exits }) => exits.load()));
    await Promise.all(gateways.map(({ exits }) => exits.tick()));
    world.now += 10_000;
    for (const { exits } of gateways) await exits.tick();
    t.equal(world.fetched.length, 1);
    t.ok(gateways.every(({ exits }) => exits.has(address('198.51.100.9')) === true));
    t.same(
      gateways.flatMap(({ problems, refused }) => [...problems, ...refused]),
      [],
    );
    const record = JSON.parse((await server.client.get('mg:tor-exits')) ?? '') as object;
    t.match(record, {
      version: 1,
      digest: /^[0-9a-f]{64}$/,
      size: 1,
      time: '2026-01-01T00:00:00.000Z',
      sources: [{ source: url, list: { etag: '"1"', addresses: ['198.51.100.9'] } }],
    });
    await gateways[0]?.exits.close();
    world.now += 2 * hour;
    world.responses.set(url, 'unchanged');
    await gateways[1]?.exits.tick();
    t.same(world.fetched.at(-1), { url, etag: '"1"' });
    t.equal(gateways[1]?.exits.status().ageSeconds, 0);
  });
});
