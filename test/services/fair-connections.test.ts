import t from 'tap';
import { DatabaseError } from '../../src/database/database-error.js';
import { FairConnectionShares } from '../../src/services/fair-connections.js';
import { ManualTime } from '../registry/manual-time.js';
import { createPostgresDatabase, postgresAlone } from '../database/each-database.js';
import { merchantA, patient, servicesFixture } from './services-fixture.js';

/** A pool of `maxConnections`. `going` has the requests that hold a connection, oldest first. */
function connections(maxConnections: number) {
  const time = new ManualTime();
  const fair = new FairConnectionShares({ pool: { maxConnections, connectTimeoutSeconds: 5 }, timers: time });
  const going: { name: string; end: () => void }[] = [];
  const ask = (name: string) =>
    fair.use(
      name,
      () =>
        new Promise<string>((resolve) => {
          const end = () => {
            resolve(name);
          };
          going.push({ name, end });
        }),
    );
  const held = () => {
    const counts: Record<string, number> = {};
    for (const { name } of going) counts[name] = (counts[name] ?? 0) + 1;
    return counts;
  };
  /** Ends the oldest request of a merchant. */
  const end = async (name: string) => {
    const [one] = going.splice(
      going.findIndex((one) => one.name === name),
      1,
    );
    one?.end();
    for (let turn = 0; turn < 5; turn += 1) await new Promise(setImmediate);
  };
  const many = (name: string, count: number) => Array.from({ length: count }, () => ask(name));
  return { ask, end, going, held, many, time };
}

t.test('one merchant gets at most half of the connections, and a merchant without any gets a free one', async (t) => {
  const { end, going, held, many } = connections(10);
  const asked = ['a', 'b', 'c', 'd', 'e'].flatMap((name) => many(name, 6));
  t.same(held(), { a: 5, b: 3, c: 1, d: 1 });
  await end('a');
  t.same(held(), { a: 4, b: 3, c: 1, d: 1, e: 1 }, 'the merchant with the fewest connections is served first');
  await end('b');
  t.same(held(), { a: 4, b: 2, c: 1, d: 1, e: 1 }, 'the last connection is reserved for a merchant without any');
  while (going.length > 0) await end(going[0]?.name ?? '');
  t.equal((await Promise.all(asked)).length, 30, 'eventually every request was served');
});

t.test('a single connection is passed from request to request', async (t) => {
  const { ask, end, held, many } = connections(1);
  const asked = [...many('a', 2), ask('b')];
  t.same(held(), { a: 1 });
  await end('a');
  t.same(held(), { a: 1 }, 'among merchants without a connection the first to wait is served');
  await end('a');
  t.same(held(), { b: 1 });
  await end('b');
  await Promise.all(asked);
});

t.test('a request that waits too long fails and takes no connection', async (t) => {
  const { ask, end, held, many, time } = connections(2);
  const first = ask('a');
  time.advance(1000);
  const late = many('a', 2);
  time.advance(4999);
  t.same(held(), { a: 1 });
  const after = ask('a');
  time.advance(1);
  for (const one of late) await t.rejects(one, DatabaseError);
  await end('a');
  t.same(held(), { a: 1 });
  await end('a');
  t.same(await Promise.all([first, after]), ['a', 'a']);
  t.equal(time.untilNext, null, 'no timer remains');
});

t.test('a failed request returns its connection', async (t) => {
  const pool = { maxConnections: 1, connectTimeoutSeconds: 5 };
  const fair = new FairConnectionShares({ pool, timers: new ManualTime() });
  const fail = () => fair.use('a', () => Promise.reject(new Error('wrong')));
  for (const outcome of await Promise.allSettled([fail(), fail(), fail()])) {
    t.match(outcome, { status: 'rejected', reason: { message: 'wrong' } });
  }
});

t.test('PostgreSQL: every route needs only one connection, so a pool of one suffices', postgresAlone, async (t) => {
  const pool = { ...patient, maxConnections: 1 };
  const { call, app } = await servicesFixture(t, { url: await createPostgresDatabase(t), pool });
  for (const url of ['/transactions', '/dev/payouts', '/dev/wallets', '/dev/customers']) {
    for (const method of ['GET', 'HEAD'] as const) {
      const headers = { 'x-merchant-id': merchantA.merchantId, 'x-merchant-environment': 'live' };
      t.equal((await app.inject({ method, url, headers })).statusCode, 200, `${method} ${url}`);
    }
  }
  t.equal((await call(null, 'GET', '/readyz')).status, 200);
});
