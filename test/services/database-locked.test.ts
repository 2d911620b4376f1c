import { execFileSync } from 'node:child_process';
import { sql } from '../../src/database/kysely.js';
import t from 'tap';
import { createPostgresDatabase, postgresAlone } from '../database/each-database.js';
import { holdLock } from '../database/held-lock.js';
import { addWallet, balanceOf, bankPayout, identityOf, merchantA, servicesFixture } from './services-fixture.js';

type Services = Awaited<ReturnType<typeof servicesFixture>>;

const unavailable = { statusCode: 503, headers: { 'retry-after': '1' }, message: 'Service unavailable' };

/** Sends requests like the gateway, and probes like an orchestrator. */
async function callerOf({ app, database }: Services) {
  const walletId = await addWallet(database, merchantA, { balance: 1000 });
  const headers = { ...identityOf(merchantA), 'content-type': 'application/json', 'idempotency-key': 'k' };
  return {
    pay: async () => {
      const body = JSON.stringify(bankPayout(walletId));
      const response = await app.inject({ method: 'POST', url: '/dev/payouts', headers, payload: body });
      const { statusCode, headers: sent } = response;
      return { statusCode, headers: sent, message: response.json<{ message: string }>().message };
    },
    balance: () => balanceOf(database, walletId),
    readiness: async () => {
      const response = await app.inject('/readyz');
      return [response.statusCode, response.json<{ message: string }>().message];
    },
  };
}

t.test('while the SQLite database is locked, requests get 503 and the process is alive but not ready', async (t) => {
  const url = `sqlite:${t.testdir()}/services.db`;
  const services = await servicesFixture(t, { url });
  const { pay, balance, readiness } = await callerOf(services);
  const lock = await holdLock(t, url);
  const payout = pay();
  t.same(await readiness(), [503, 'The database is locked or overloaded, or does not respond in time']);
  t.equal((await services.app.inject('/livez')).statusCode, 200, 'liveness responds before the payout does');
  t.match(await payout, unavailable);
  await lock.release();
  t.equal((await pay()).statusCode, 201);
  t.same(await readiness(), [200, 'Ready']);
  t.equal(await balance(), 900);
});

t.test('while disk writes fail, requests get 503 and the process is not ready', async (t) => {
  const services = await servicesFixture(t, { url: `sqlite:${t.testdir()}/services.db` });
  const { pay, balance, readiness } = await callerOf(services);
  // Without a handler the signal would end the test runner.
  process.on('SIGXFSZ', () => undefined);
  const limitFiles = (bytes: string) =>
    execFileSync('prlimit', ['--pid', String(process.pid), `--fsize=${bytes}:unlimited`]);
  t.teardown(() => limitFiles('unlimited'));
  limitFiles('1');
  t.match(await pay(), unavailable);
  t.same(await readiness(), [503, 'The disk of the database fails']);
  limitFiles('unlimited');
  t.same(await readiness(), [200, 'Ready']);
  t.equal((await pay()).statusCode, 201);
  t.equal(await balance(), 900);
});

t.test('a full SQLite database causes 503 with Retry-After', async (t) => {
  const services = await servicesFixture(t, { url: `sqlite:${t.testdir()}/services.db` });
  const { call, database } = services;
  await sql`pragma max_page_count = 1`.execute(database);
  const big = { email: 'ada@example.com', firstName: 'x'.repeat(90), lastName: 'y'.repeat(90) };
  let last = await call(merchantA, 'POST', '/dev/customers', { body: big });
  for (let count = 0; last.status === 201; count += 1) {
    last = await call(merchantA, 'POST', '/dev/customers', { body: { ...big, email: `ada${count}@example.com` } });
  }
  t.match(last, { status: 503, body: { message: 'Service unavailable' } });
  t.match(services.logged.at(-1)?.details, { err: { condition: 'full', cause: { code: 'SQLITE_FULL' } } });
});

t.test('PostgreSQL errors for a full disk or a lock timeout cause 503 with Retry-After', postgresAlone, async (t) => {
  const services = await servicesFixture(t, { url: await createPostgresDatabase(t) });
  const { pay, balance } = await callerOf(services);
  for (const [state, condition] of [
    ['53100', 'full'],
    ['55P03', 'busy'],
    ['25006', 'readOnly'],
    ['58030', 'failing'],
  ] as const) {
    await sql`create or replace function refuse() returns trigger language plpgsql as
      ${sql.lit(`begin raise exception 'refused' using errcode = '${state}'; end`)}`.execute(services.database);
    await sql`create or replace trigger refusing before insert on payouts execute function refuse()`.execute(
      services.database,
    );
    t.match(await pay(), unavailable, state);
    t.match(services.logged.at(-1)?.details, { err: { condition, cause: { code: state } } }, state);
  }
  await sql`drop trigger refusing on payouts`.execute(services.database);
  t.equal((await pay()).statusCode, 201);
  t.equal(await balance(), 900);
});
