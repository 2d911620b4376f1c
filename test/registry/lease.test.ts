import { once } from 'node:events';
import { rmSync } from 'node:fs';
import { connect, createServer, type AddressInfo } from 'node:net';
import t, { type Test } from 'tap';
import { openSession, type DatabaseSession } from '../../src/database/session/database-session.js';
import { createMerchant } from '../../src/registry/merchants/repository.js';
import { followProjection } from '../../src/registry/propagation.js';
import type { RegistryDatabase } from '../../src/registry/registry-database.js';
import { createPostgresDatabase, onEachDatabase, onServer, postgresAlone } from '../database/each-database.js';
import { until } from './manual-time.js';
import { projectionFixture } from './projection-fixture.js';
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
  time.advance(9_999);
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
  time.advance(10_000);
  await current.run();
  t.same(await differences(database, store), []);

  await createMerchant(context, 'test', { name: 'y' });
  await former.run();
  time.advance(9_000);
  await current.run();
  await former.run();
  t.same([await holderOf(database), await differences(database, store)], ['current+lock', []]);
  await current.end();
  await former.run();
  t.equal(await holderOf(database), 'former', 'what is given up is free at once');
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

/** What stands in front of PostgreSQL as a pooler does: its clients are given ids of its own. */
async function startPooler(t: Test, url: string): Promise<string> {
  const place = new URL(url);
  const [port, host] = [Number(place.port || 5432), place.hostname];
  const proxy = createServer((client) => {
    const server = connect(port, host);
    for (const socket of [client, server]) socket.on('error', () => undefined);
    client.pipe(server);
    server.on('data', (bytes: Buffer) => {
      const key = bytes.indexOf(Buffer.from([0x4b, 0, 0, 0, 12])); // BackendKeyData, at the end of the greeting
      if (key >= 0) bytes.writeInt32BE(1, key + 5);
      client.write(bytes);
    });
    server.on('close', () => client.destroy());
    client.on('close', () => server.destroy());
  }).listen(0, '127.0.0.1');
  await once(proxy, 'listening');
  t.teardown(() => proxy.close());
  place.hostname = '127.0.0.1';
  place.port = String((proxy.address() as AddressInfo).port);
  return place.href;
}

// A pooler can give two processes the same connection to PostgreSQL, and both would have the lock at once.
t.test('behind a pooler there is no lock, and the lease alone counts', postgresAlone, async (t) => {
  const url = await createPostgresDatabase(t);
  const [direct, pooled] = [opened(t, url), opened(t, await startPooler(t, url))];
  t.notOk(await pooled.hold());
  t.ok(await direct.hold());
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
    const wait = followProjection({ projector: other, store, clock: time, timers: time, maxStaleSeconds: 30 });
    for (let change = 1; change <= 3; change += 1) {
      // Time stands still: neither looks now and then, nor does the wait end.
      await createMerchant({ ...context, onChange }, 'test', { name: 'x' });
      t.ok(await wait(change));
      t.equal(store.revision, change);
    }
  },
);
