import { once } from 'node:events';
import net from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import t from 'tap';
import { createPostgresDatabase, onServer, postgresAlone } from '../database/each-database.js';
import { addWallet, balanceOf, bankPayout, identityOf, merchantA, servicesFixture } from './services-fixture.js';
import type { ServicesUnderTest } from './services-fixture.js';

/** A TCP proxy to PostgreSQL that the test can cut or stall. */
async function doorTo(t: { teardown(end: () => unknown): void }, target: URL) {
  const pairs = new Set<readonly [Socket, Socket]>();
  const state = { isCut: false, isStuck: false };
  const server = net.createServer((socket) => {
    if (state.isCut) {
      socket.destroy();
      return;
    }
    const through = net.connect(Number(target.port === '' ? 5432 : target.port), target.hostname);
    const pair = [socket, through] as const;
    pairs.add(pair);
    for (const [one, other] of [pair, pair.toReversed() as [Socket, Socket]]) {
      one.on('data', (chunk: Buffer) => {
        if (!state.isStuck) other.write(chunk);
      });
      one.on('error', () => other.destroy());
      one.on('close', () => other.destroy());
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const dropAll = () => {
    for (const pair of pairs) for (const socket of pair) socket.destroy();
    pairs.clear();
  };
  t.teardown(() => {
    dropAll();
    server.close();
  });
  const url = new URL(target);
  url.hostname = '127.0.0.1';
  url.port = String((server.address() as AddressInfo).port);
  return {
    url: url.href,
    open: () => Object.assign(state, { isCut: false, isStuck: false }),
    stick: () => Object.assign(state, { isStuck: true }),
    cut: () => {
      state.isCut = true;
      dropAll();
    },
  };
}

t.test('an unavailable database causes 503 with Retry-After within a bounded time', postgresAlone, async (t) => {
  const direct = await createPostgresDatabase(t);
  const { database } = await servicesFixture(t, { url: direct });
  const walletId = await addWallet(database, merchantA, { balance: 1000 });
  const door = await doorTo(t, new URL(direct));
  const pool = { maxConnections: 2, connectTimeoutSeconds: 2, statementTimeoutSeconds: 1 };
  const { app, logged } = await servicesFixture(t, { url: door.url, pool });

  const send = async (services: ServicesUnderTest['app'], method: 'GET' | 'POST', url: string) => {
    const headers = { ...identityOf(merchantA), 'content-type': 'application/json', 'idempotency-key': 'k' };
    const body = method === 'GET' ? {} : { payload: JSON.stringify(bankPayout(walletId)) };
    const response = await services.inject({ method, url, headers, ...body });
    return { status: response.statusCode, body: response.json<object>(), retry: response.headers['retry-after'] };
  };
  const ask = (method: 'GET' | 'POST', url: string) => send(app, method, url);
  const unavailable = {
    success: false,
    message: 'Service unavailable',
    data: { code: 'service_unavailable', errors: [] },
  };
  const away = { status: 503, body: unavailable, retry: '1' };
  const isBack = async () =>
    (await ask('GET', '/dev/wallets')).status === 200 && (await app.inject('/readyz')).statusCode === 200;
  /** Waits until the pool has no broken connection left, and the services are ready. */
  const untilBack = async () => {
    for (const end = performance.now() + 60_000; !(await isBack());) {
      if (performance.now() > end) throw new Error('never: the database can be used again');
    }
  };
  await untilBack();

  await t.test('the connection is cut', async (t) => {
    door.cut();
    t.same(await ask('GET', '/transactions'), away);
    t.same(await ask('POST', '/dev/payouts'), away);
    t.match(logged.at(-1)?.details, { err: /^DatabaseError: The PostgreSQL database \S+ at \S+ cannot be used: / });
    t.equal((await app.inject('/livez')).statusCode, 200);
    t.equal((await app.inject('/readyz')).statusCode, 503);
    door.open();
    await untilBack();
    t.equal(await balanceOf(database, walletId), 1000);
  });

  await t.test('the server does not respond', async (t) => {
    door.stick();
    t.same(await Promise.all([1, 2, 3].map(() => ask('GET', '/transactions'))), [away, away, away]);
    t.same(await ask('POST', '/dev/payouts'), away);
    door.open();
    await untilBack();
    t.equal(await balanceOf(database, walletId), 1000);
  });

  await t.test('a lock is held for too long', async (t) => {
    // Longer timeouts: a stall of the machine must not exceed them again after the lock is released.
    const patience = { maxConnections: 2, connectTimeoutSeconds: 10, statementTimeoutSeconds: 4 };
    const services = await servicesFixture(t, { url: direct, pool: patience });
    const pay = () => send(services.app, 'POST', '/dev/payouts');
    await database.transaction().execute(async (transaction) => {
      await transaction.updateTable('wallets').set({ balance: 1000 }).execute();
      t.same(await pay(), away);
    });
    t.equal((await pay()).status, 201, 'the same request succeeds after the lock is released');
    t.equal((await pay()).status, 201);
    t.equal(await balanceOf(database, walletId), 900, 'the payout was made once');
  });
});

t.test('while the database is read-only the services are not ready', postgresAlone, async (t) => {
  const url = await createPostgresDatabase(t);
  const name = new URL(url).pathname.slice(1);
  const { app } = await servicesFixture(t, { url });
  const readiness = async () => {
    const { statusCode } = await app.inject('/readyz');
    const ready = /^services_ready (\d)$/m.exec((await app.inject('/metrics')).body)?.[1];
    t.equal(Number(ready), Number(statusCode === 200), 'the metrics report the same');
    return statusCode;
  };
  const makeReadOnly = async (value: 'on' | 'off') => {
    await onServer(`alter database ${name} set default_transaction_read_only = ${value}`);
  };
  t.equal(await readiness(), 200);
  await makeReadOnly('on');
  await onServer(`select pg_terminate_backend(pid) from pg_stat_activity where datname = '${name}'`);
  t.equal(await readiness(), 503, 'the connection is terminated');
  t.equal(await readiness(), 503, 'after a failover the name may lead to the standby for a while');
  await makeReadOnly('off');
  t.equal(await readiness(), 200, 'ready on a new connection');
});
