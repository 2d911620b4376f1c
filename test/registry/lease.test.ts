import { rmSync } from 'node:fs';
import { isDeepStrictEqual } from 'node:util';
import pg from 'pg';
import t, { type Test } from 'tap';
import { registryAuthor } from '../../src/registry/events/author.js';
import { openSession, type DatabaseSession } from '../../src/database/session.js';
import { createMerchant } from '../../src/registry/merchants/repository.js';
import { Lease } from '../../src/registry/projection/lease.js';
import { removeChanges } from '../../src/registry/projection/outbox.js';
import { followProjection } from '../../src/registry/propagation.js';
import type { RegistryDatabase } from '../../src/registry/registry-database.js';
import { createPostgresDatabase, onEachDatabase, onServer, postgresAlone } from '../database/each-database.js';
import { until } from './manual-time.js';
import { projectionFixture, withoutLock } from './projection-fixture.js';
import { differences } from './stored-state.js';

/** A database session of one process; closing it simulates the end of the process. */
function opened(t: Test, url: string): DatabaseSession {
  const session = openSession({ url });
  t.teardown(() => session.close());
  return session;
}

async function holderOf(database: RegistryDatabase): Promise<string> {
  return (await database.selectFrom('projector').selectAll().executeTakeFirstOrThrow()).holder;
}

onEachDatabase(
  'the lease of a crashed registry is taken over at once, and that of a running registry is not',
  async (t, url) => {
    const { context, database, projection, store } = await projectionFixture(t, url);
    const ending = opened(t, url);
    const [crashing, next] = [projection('crashing', ending), projection('next', opened(t, url))];
    await crashing.run();
    await createMerchant(context, registryAuthor, { name: 'x' });
    for (let attempt = 0; attempt < 3; attempt += 1) await next.run();
    t.equal((await differences(database, store)).length, 1, 'the lease holder is running');
    await crashing.run();
    t.same(await differences(database, store), []);

    await createMerchant(context, registryAuthor, { name: 'y' });
    await ending.close();
    // The clock does not advance, so the lease has not expired. The server may notice the closed connection late.
    await until(async () => {
      await next.run();
      return (await holderOf(database)) === 'next+lock';
    });
    t.same(await differences(database, store), []);
    await createMerchant(context, registryAuthor, { name: 'z' });
    await crashing.run();
    t.equal((await differences(database, store)).length, 1, 'a process that lost its session stops projecting');
    await next.run();
    t.same(await differences(database, store), []);
  },
);

onEachDatabase('the lease of a hung registry that still holds its lock expires normally', async (t, url) => {
  const { context, database, projection, store, time } = await projectionFixture(t, url);
  const [hanging, next] = [projection('hanging', opened(t, url)), projection('next', opened(t, url))];
  await hanging.run();
  await createMerchant(context, registryAuthor, { name: 'x' });
  await next.run();
  time.advance(3_499);
  await next.run();
  t.equal(await holderOf(database), 'hanging+lock');
  time.advance(1);
  await next.run();
  t.same(await differences(database, store), []);
  t.equal(await holderOf(database), 'next', "the holder's row records that it has no lock");

  // The process that hung holds the lock, but must not write to the store: another process holds the lease, and is
  // running.
  await createMerchant(context, registryAuthor, { name: 'y' });
  for (let attempt = 0; attempt < 3; attempt += 1) await hanging.run();
  t.equal((await differences(database, store)).length, 1);
  await next.run();
  t.same(await differences(database, store), []);
  t.equal(await holderOf(database), 'next+lock', 'the new holder obtained the lock after its release');
});

onEachDatabase(
  'a registry without locks (earlier release) keeps its lease, and honours the lease of this release',
  async (t, url) => {
    const { context, database, projection, store, time } = await projectionFixture(t, url);
    const [former, current] = [projection('former'), projection('current', opened(t, url))];
    await former.run();
    await createMerchant(context, registryAuthor, { name: 'x' });
    for (let attempt = 0; attempt < 3; attempt += 1) await current.run();
    t.equal(
      (await differences(database, store)).length,
      1,
      'a free lock does not end a lease that was taken without a lock',
    );
    time.advance(3_500);
    await current.run();
    t.same(await differences(database, store), []);

    await createMerchant(context, registryAuthor, { name: 'y' });
    await former.run();
    time.advance(3_000);
    await current.run();
    await former.run();
    t.same([await holderOf(database), await differences(database, store)], ['current+lock', []]);
    await current.end();
    await former.run();
    t.equal(await holderOf(database), 'former', 'a released lease is available at once');
  },
);

/** A session whose lock is controlled by the test. */
function sessionOf(state: { isHeld: boolean }): DatabaseSession {
  return { ...withoutLock, hold: () => Promise.resolve(state.isHeld) };
}

onEachDatabase('a recently renewed lease is kept without a write', async (t, url) => {
  const { context, database, time } = await projectionFixture(t, url);
  const { monotonic } = time;
  const lock = { isHeld: true };
  const lease = new Lease({ database, clock: time, holder: 'one', session: sessionOf(lock), monotonic });
  /** Advances the clock, and tries to take the lease. Returns whether it was taken, and whether that wrote the row. */
  const take = async (milliseconds: number): Promise<string> => {
    time.advance(milliseconds);
    const before = await database.selectFrom('projector').selectAll().executeTakeFirstOrThrow();
    const isTaken = await lease.take();
    const after = await database.selectFrom('projector').selectAll().executeTakeFirstOrThrow();
    return `${isTaken ? 'taken' : 'not taken'}, ${isDeepStrictEqual(after, before) ? 'read' : 'written'}`;
  };
  t.equal(await take(0), 'taken, written');
  t.equal(await take(999), 'taken, read');
  t.equal(await take(1), 'taken, written', 'one second has passed');
  await createMerchant(context, registryAuthor, { name: 'x' });
  t.equal(await take(1_749), 'taken, read', 'the pending change will renew the lease');
  t.equal(await take(1), 'taken, written', 'a pending change delays the renewal to half of the lease at most');

  time.advance(1_000);
  t.ok(await lease.finish({ names: [], revision: 1 }, (transaction) => removeChanges(transaction, 1)));
  t.equal(await take(999), 'taken, read', 'finishing a change renews the lease');
  await t.rejects(lease.finish({ names: [], revision: 1 }, () => Promise.reject(new Error('undone'))));
  t.equal(await take(1), 'taken, written', 'a rolled-back change does not renew the lease');

  lock.isHeld = false;
  t.equal(await take(1), 'taken, written', 'the row must not claim a lock that is lost');
  t.equal(await holderOf(database), 'one');
  t.equal(await take(1), 'taken, read');
  lock.isHeld = true;
  t.equal(await take(1), 'taken, written');
  t.equal(await holderOf(database), 'one+lock');

  await lease.giveUp();
  t.equal(await take(1), 'taken, written', 'any process can take a released lease');
  await database.updateTable('projector').set({ lease_ends_at: 1 }).execute();
  t.equal(await take(1), 'taken, written', 'the row of a restored database proves nothing about the lease');
  const other = new Lease({ database, clock: time, holder: 'other', session: sessionOf({ isHeld: false }), monotonic });
  t.notOk(await other.take());
  await database.updateTable('projector').set({ holder: 'other', lease_ends_at: 20_000 }).execute();
  t.equal(await take(1), 'not taken, read', 'another process holds the lease');
  t.notOk(await lease.finish({ names: ['key:x'], revision: 1 }, () => Promise.reject(new Error('not kept'))));
});

onEachDatabase('a lease that is kept without writes cannot be taken by another process', async (t, url) => {
  const { context, database, projection, store, time } = await projectionFixture(t, url);
  const [one, other] = [projection('one'), projection('other')];
  for (let second = 0; second < 60; second += 1) {
    await one.run();
    await other.run();
    t.equal(await holderOf(database), 'one');
    if (second % 7 === 0) await createMerchant(context, registryAuthor, { name: 'x' });
    time.advance(1_000);
  }
  await one.run();
  t.same(await differences(database, store), []);
});

t.test('removing the lock file and recreating it from another process loses the lock', async (t) => {
  const path = `${t.testdir()}/test.db`;
  const [one, other] = [opened(t, `sqlite:${path}`), opened(t, `sqlite:${path}`)];
  t.ok(await one.hold());
  t.notOk(await other.hold());
  rmSync(`${path}.lock`);
  t.ok(await other.hold());
  t.notOk(await one.hold());
  t.ok(await other.hold());
  await other.release();
  t.ok(await one.hold());
});

t.test('a terminated connection loses the lock, and a new connection obtains it again', postgresAlone, async (t) => {
  const url = await createPostgresDatabase(t);
  const [one, other] = [opened(t, url), opened(t, url)];
  t.ok(await one.hold());
  t.notOk(await other.hold());
  const database = new URL(url).pathname.slice(1);
  const ofOne = `application_name = 'merchant-gateway lock' and pid in (select pid from pg_locks where locktype = 'advisory')`;
  await onServer(`select pg_terminate_backend(pid) from pg_stat_activity where datname = '${database}' and ${ofOne}`);
  await until(() => other.hold());
  t.notOk(await one.hold());
  await other.close();
  await until(() => one.hold());
  t.pass('the session reconnected');
});

/** The number of connections to a database that were opened for its lock. */
async function countSessions(url: string): Promise<number | undefined> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    const { rows } = await client.query<{ count: number }>(
      "select count(*)::int as count from pg_stat_activity where datname = current_database() and application_name = 'merchant-gateway lock'",
    );
    return rows[0]?.count;
  } finally {
    await client.end();
  }
}

// Regression: each of several simultaneous calls of `hold` opened a connection. The lock could stay with a connection
// that the session no longer knew.
t.test('simultaneous callers share one connection, and one release frees the lock', postgresAlone, async (t) => {
  const url = await createPostgresDatabase(t);
  const [one, other] = [opened(t, url), opened(t, url)];
  t.same(await Promise.all([one.hold(), one.hold(), one.hold()]), [true, true, true]);
  t.equal(await countSessions(url), 1);
  t.same(await Promise.all([one.hold(), one.release()]), [true, undefined]);
  t.ok(await other.hold());
  t.notOk(await one.hold(), 'it claims no lock that it has released');
  await other.close();
  await until(() => one.hold());
  await one.close();
  const next = opened(t, url);
  await until(() => next.hold());
  t.pass('no lost connection keeps the lock');
});

t.test('a session that is closed while it connects opens no connection', postgresAlone, async (t) => {
  const url = await createPostgresDatabase(t);
  const closed = opened(t, url);
  const holding = closed.hold();
  await closed.close();
  t.notOk(await holding);
  await until(async () => (await countSessions(url)) === 0);
  t.ok(await opened(t, url).hold());
});

t.test(
  'a change at a registry that does not project is projected at once, and that registry learns so',
  postgresAlone,
  async (t) => {
    const url = await createPostgresDatabase(t);
    const { context, projectorOn, store, time } = await projectionFixture(t, url);
    const projecting = projectorOn('projecting');
    projecting.wake();
    await projecting.nextPass();
    const other = projectorOn('other');
    other.wake();
    await other.nextPass();
    const onChange = (): void => {
      other.changed();
    };
    const wait = followProjection({
      ...{ projector: other, database: context.database, store, clock: time, timers: time },
      longestLifetimeMilliseconds: 31_000,
    });
    for (let change = 1; change <= 3; change += 1) {
      // The clock does not advance: neither the polling interval nor the wait can expire.
      await createMerchant({ ...context, onChange }, registryAuthor, { name: 'x' });
      t.ok(await wait(change));
      t.equal(store.revision, change);
    }
  },
);
