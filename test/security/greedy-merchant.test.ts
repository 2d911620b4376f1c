import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { sql } from '../../src/database/kysely.js';
import { joinAdding, openServicesDatabase, type ServicesTransaction } from '../../src/services/services-database.js';
import { createPostgresDatabase, postgresAlone } from '../database/each-database.js';
import {
  addWallet,
  balanceOf,
  bankPayout,
  merchantA,
  merchantB,
  patient,
  sandboxOfA,
  servicesFixture,
} from '../services/services-fixture.js';

const longerThanTheTest = 60;

/** Does what a process does that hangs in the middle of a payout; PostgreSQL would end it on a slow machine. */
async function hang(transaction: ServicesTransaction): Promise<void> {
  await sql`set local idle_in_transaction_session_timeout = 0`.execute(transaction);
  await joinAdding(transaction, merchantA);
}

// The requests of one merchant, each waiting for a lock of its own, had all connections, and everybody else got none.
t.test('a merchant whose requests wait for its locks leaves connections to the others', postgresAlone, async (t) => {
  const url = await createPostgresDatabase(t);
  const pool = { ...patient, connectTimeoutSeconds: longerThanTheTest };
  const { call } = await servicesFixture(t, { url, pool });
  const control = await openServicesDatabase({ url, pool: patient });
  t.teardown(() => control.destroy());
  const [own, other] = [
    await addWallet(control, merchantA, { balance: 1000 }),
    await addWallet(control, merchantB, { balance: 1000 }),
  ];
  const pay = (tenant: typeof merchantA, walletId: string) =>
    call(tenant, 'POST', '/dev/payouts', { body: bankPayout(walletId, { amount: 1 }) });
  const waiting = async () => {
    const { rows } = await sql<{ count: number }>`select count(*) as count from pg_stat_activity
      where datname = current_database() and wait_event_type = 'Lock'`.execute(control);
    return rows[0]?.count ?? 0;
  };
  const ways = {
    'payouts from a wallet that is locked': () => pay(merchantA, own),
    'lists while a payout is being made': () => call(merchantA, 'GET', '/dev/payouts'),
  };
  for (const [about, ask] of Object.entries(ways)) {
    const asked = await control.transaction().execute(async (hanging) => {
      await hang(hanging);
      await hanging.updateTable('wallets').set({ currency: 'NGN' }).where('id', '=', own).execute();
      const asked = Array.from({ length: 20 }, ask);
      while ((await waiting()) < pool.maxConnections / 2) await wait(1);
      t.equal((await call(merchantB, 'GET', '/transactions')).status, 200, about);
      t.equal((await pay(merchantB, other)).status, 201);
      t.equal((await call(null, 'GET', '/readyz')).status, 200);
      t.equal(await waiting(), pool.maxConnections / 2, 'it has half of them');
      return asked;
    });
    const answers = await Promise.all(asked);
    t.ok(
      answers.every(({ status }) => status < 300),
      'and in the end it has its answers',
    );
  }
  t.equal(await balanceOf(control, own), 980);
});

t.test('what waits too long for its own share is a 503, also in the sandbox', postgresAlone, async (t) => {
  const url = await createPostgresDatabase(t);
  const { app, call, logged } = await servicesFixture(t, { url, pool: { ...patient, connectTimeoutSeconds: 1 } });
  const control = await openServicesDatabase({ url, pool: patient });
  t.teardown(() => control.destroy());
  const lists = await control.transaction().execute(async (hanging) => {
    await hang(hanging);
    const lists = Array.from({ length: 2 }, () => call(merchantA, 'GET', '/dev/payouts'));
    const headers = { 'x-merchant-id': sandboxOfA.merchantId, 'x-merchant-environment': sandboxOfA.environment };
    const answer = await app.inject({ url: '/transactions', headers });
    t.match(answer, { statusCode: 503, headers: { 'retry-after': '1' } });
    t.same(answer.json(), {
      success: false,
      message: 'Service unavailable',
      data: { code: 'service_unavailable', errors: [] },
    });
    t.match(logged, [{ details: { err: /share of the connections/ } }]);
    return lists;
  });
  for (const { status } of await Promise.all(lists)) t.equal(status, 200);
});
