import { rmSync } from 'node:fs';
import { isDeepStrictEqual } from 'node:util';
import t, { type Test } from 'tap';
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

/** A session as a process has it; to close it is what the end of the process does. */
function opened(t: Test, url: string): DatabaseSession {
  const session = openSession({ url });
  t.teardown(() => session.close());
  return session;
}

async function holderOf(database: RegistryDatabase): Promise<string> {
  return (await database.selectFrom('projector').selectAll().executeTakeFirstOrThrow()).holder;
}

onEachDatabase('a registry that has crashed is taken over at once, and one that lives is not', async (t, url) => {
  const { context, database, projection, store } = await projectionFixture(t, url);
  const ending = opened(t, url);
  const [crashing, next] = [projection('crashing', ending), projection('next', opened(t, url))];
  await crashing.run();
  await createMerchant(context, 'test', { name: 'x' });
  for (let attempt = 0; attempt < 3; attempt += 1) await next.run();
  t.equal((await differences(database, store)).length, 1, 'its holder lives');
  await crashing.run();
  t.same(await differences(database, store), []);

  await createMerchant(context, 'test', { name: 'y' });
  await ending.close();
  // Time stands still: the lease has not ended. The server may take a moment to see that a connection has.
  await until(async () => {
    await next.run();
    return (await holderOf(database)) === 'next+lock';
  });
  t.same(await differences(database, store), []);
  await createMerchant(context, 'test', { name: 'z' });
  await crashing.run();
  t.equal((await differences(database, store)).length, 1, 'one that had only lost its session projects no more');
  await next.run();
  t.same(await differences(database, store), []);
});

onEachDatabase('the lease of a registry that hangs, and holds its lock, ends as before', async (t, url) => {
  const { context, database, projection, store, time } = await projectionFixture(t, url);
  const [hanging, next] = [projection('hanging', opened(t, url)), projection('next', opened(t, url))];
  await hanging.run();
  await createMerchant(context, 'test', { name: 'x' });
  await next.run();
  time.advance(3_499);
  await next.run();
  t.equal(await holderOf(database), 'hanging+lock');
  time.advance(1);
  await next.run();
  t.same(await differences(database, store), []);
  t.equal(await holderOf(database), 'next', 'it says that it has no lock');

  // The lock of the one that hung is no right to project: the holder of the lease lives.
  await createMerchant(context, 'test', { name: 'y' });
  for (let attempt = 0; attempt < 3; attempt += 1) await hanging.run();
  t.equal((await differences(database, store)).length, 1);
  await next.run();
  t.same(await differences(database, store), []);
  t.equal(await holderOf(database), 'next+lock', 'the other one has given the lock to it');
});

onEachDatabase('a registry of a release that knows the lease alone is waited for, and waits', async (t, url) => {
  const { context, database, projection, store, time } = await projectionFixture(t, url);
  const [former, current] = [projection('former'), projection('current', opened(t, url))];
  await former.run();
  await createMerchant(context, 'test', { name: 'x' });
  for (let attempt = 0; attempt < 3; attempt += 1) await current.run();
  t.equal((await differences(database, store)).length, 1, 'that the lock is free says nothing of it');
  time.advance(3_500);
  await current.run();
  t.same(await differences(database, store), []);

  await createMerchant(context, 'test', { name: 'y' });
  await former.run();
  time.advance(3_000);
  await current.run();
  await former.run();
  t.same([await holderOf(database), await differences(database, store)], ['current+lock', []]);
  await current.end();
  await former.run();
  t.equal(await holderOf(database), 'former', 'what is given up is free at once');
});

/** A session whose lock the test gives and takes. */
function sessionOf(state: { isHeld: boolean }): DatabaseSession {
  return { ...withoutLock, hold: () => Promise.resolve(state.isHeld) };
}

onEachDatabase('a lease that was prolonged lately is kept without a write', async (t, url) => {
  const { context, database, time } = await projectionFixture(t, url);
  const { monotonic } = time;
  const lock = { isHeld: true };
  const lease = new Lease({ database, clock: time, holder: 'one', session: sessionOf(lock), monotonic });
  /** Whether the lease was taken, and whether that wrote anything. */
  const take = async (milliseconds: number): Promise<string> => {
    time.advance(milliseconds);
    const before = await database.selectFrom('projector').selectAll().executeTakeFirstOrThrow();
    const isTaken = await lease.take();
    const after = await database.selectFrom('projector').selectAll().executeTakeFirstOrThrow();
    return `${isTaken ? 'taken' : 'not taken'}, ${isDeepStrictEqual(after, before) ? 'read' : 'written'}`;
  };
  t.equal(await take(0), 'taken, written');
  t.equal(await take(999), 'taken, read');
  t.equal(await take(1), 'taken, written', 'a second has passed');
  await createMerchant(context, 'test', { name: 'x' });
  t.equal(await take(1_749), 'taken, read', 'a change is about to prolong it');
  t.equal(await take(1), 'taken, written', 'but not for more than half of its length');

  time.advance(1_000);
  t.ok(await lease.finish({ names: [], revision: 1 }, (transaction) => removeChanges(transaction, 1)));
  t.equal(await take(999), 'taken, read', 'to finish prolongs it too');
  await t.rejects(lease.finish({ names: [], revision: 1 }, () => Promise.reject(new Error('undone'))));
  t.equal(await take(1), 'taken, written', 'what was undone did not prolong it');

  lock.isHeld = false;
  t.equal(await take(1), 'taken, written', 'the row must not say that a lost lock is held');
  t.equal(await holderOf(database), 'one');
  t.equal(await take(1), 'taken, read');
  lock.isHeld = true;
  t.equal(await take(1), 'taken, written');
  t.equal(await holderOf(database), 'one+lock');

  await lease.giveUp();
  t.equal(await take(1), 'taken, written', 'what was given up is anybody’s');
  await database.updateTable('projector').set({ lease_ends_at: 1 }).execute();
  t.equal(await take(1), 'taken, written', 'a database that has gone back says nothing of the lease');
  const other = new Lease({ database, clock: time, holder: 'other', session: sessionOf({ isHeld: false }), monotonic });
  t.notOk(await other.take());
  await database.updateTable('projector').set({ holder: 'other', lease_ends_at: 20_000 }).execute();
  t.equal(await take(1), 'not taken, read', 'another process has it');
  t.notOk(await lease.finish({ names: ['key:x'], revision: 1 }, () => Promise.reject(new Error('not kept'))));
});

onEachDatabase('a lease that is kept without writes is not taken by another process', async (t, url) => {
  const { context, database, projection, store, time } = await projectionFixture(t, url);
  const [one, other] = [projection('one'), projection('other')];
  for (let second = 0; second < 60; second += 1) {
    await one.run();
    await other.run();
    t.equal(await holderOf(database), 'one');
    if (second % 7 === 0) await createMerchant(context, 'test', { name: 'x' });
    time.advance(1_000);
  }
  await one.run();
  t.same(await differences(database, store), []);
});

t.test('a lock file that is removed, and made anew by another process, is a lost lock', async (t) => {
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

t.test('a connection that the server ends is a lost lock, and another one gets it back', postgresAlone, async (t) => {
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
  t.pass('it connects again');
});

t.test(
  'a change at the registry that does not project goes out at once, and it learns so',
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
      // Time stands still: neither looks now and then, nor does the wait end.
      await createMerchant({ ...context, onChange }, 'test', { name: 'x' });
      t.ok(await wait(change));
      t.equal(store.revision, change);
    }
  },
);
