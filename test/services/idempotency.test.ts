import t from 'tap';
import { databaseClock, sqlTime, tryLock } from '../../src/database/dialects.js';
import { sql } from '../../src/database/kysely.js';
import type { Tenant } from '../../src/services/assertion-verifier.js';
import { renewStoredResponses } from '../../src/services/idempotency/repository.js';
import { StoredResponsePurge } from '../../src/services/start-services.js';
import { createPostgresDatabase, onEachDatabase, postgresAlone } from '../database/each-database.js';
import { until } from '../registry/manual-time.js';
import {
  addWallet,
  balanceOf,
  bankPayout,
  identityOf,
  ledgerSum,
  merchantA,
  merchantB,
  onEachServices,
  sandboxOfA,
  servicesFixture,
  type ServicesUnderTest,
} from './services-fixture.js';

const tenMinutes = 10 * 60 * 1000;
const hour = 60 * 60 * 1000;
const day = 24 * hour;

/** Sends a request with an Idempotency-Key; resolves with the exact response. */
async function send(
  { app }: ServicesUnderTest,
  key: string,
  body: object,
  url = '/dev/payouts',
  tenant: Tenant = merchantA,
) {
  const headers = { ...identityOf(tenant), 'content-type': 'application/json', 'idempotency-key': key };
  const response = await app.inject({ method: 'POST', url, headers, payload: JSON.stringify(body) });
  return { status: response.statusCode, body: response.body, replayed: response.headers['idempotency-replayed'] };
}

onEachServices('the same key and body get the same response again, without a second effect', async (t, services) => {
  const { database } = services;
  const walletId = await addWallet(database, merchantA, { balance: 1000, isDefault: true });
  const routes: [url: string, body: Record<string, unknown>][] = [
    ['/dev/payouts', bankPayout(walletId)],
    ['/payouts', { amount: 100, currency: 'NGN', recipient: '+2348012345678' }],
    ['/dev/customers', { email: 'ada@example.com', firstName: 'Ada', lastName: 'Obi' }],
  ];
  for (const [index, [url, body]] of routes.entries()) {
    const first = await send(services, `key-${index}`, body, url);
    t.equal(first.status, 201, url);
    t.equal(first.replayed, undefined);
    const reordered = Object.fromEntries(Object.entries(body).toReversed());
    for (const again of [body, reordered]) {
      t.same(await send(services, `key-${index}`, again, url), { ...first, replayed: 'true' }, url);
    }
    t.match(
      await send(services, `other-${index}`, body, url),
      { status: index === 2 ? 409 : 201 },
      'another key is another request',
    );
  }
  t.equal(await balanceOf(database, walletId), 600);
  t.equal(await ledgerSum(database, walletId), 600);
});

onEachServices('a key that was used with another body or route is rejected', async (t, services) => {
  const { database } = services;
  const walletId = await addWallet(database, merchantA, { balance: 1000, isDefault: true });
  await send(services, 'k', bankPayout(walletId));
  const message = 'This Idempotency-Key was used for another request: use a different key for each request';
  const refused = {
    success: false,
    message,
    data: { code: 'idempotency_key_reused', errors: [{ path: 'Idempotency-Key', message }] },
  };
  for (const [url, body] of [
    ['/dev/payouts', bankPayout(walletId, { amount: 101 })],
    ['/dev/payouts', bankPayout(walletId, { remarks: undefined })],
    ['/payouts', { amount: 100, currency: 'NGN', recipient: '+2348012345678' }],
  ] as const) {
    const response = await send(services, 'k', body, url);
    t.same({ status: response.status, body: JSON.parse(response.body) as object }, { status: 422, body: refused });
  }
  t.equal(await balanceOf(database, walletId), 900);
});

onEachServices('keys are separate per merchant and environment', async (t, services) => {
  const { database } = services;
  for (const tenant of [merchantA, merchantB, sandboxOfA]) {
    const walletId = await addWallet(database, tenant, { balance: 1000 });
    const response = await send(services, 'same', bankPayout(walletId), '/dev/payouts', tenant);
    t.equal(response.status, 201);
    t.match(JSON.parse(response.body), { data: { walletId } });
    t.equal(await balanceOf(database, walletId), 900);
  }
});

onEachServices('a rejection that depends on records is stored; a validation error is not', async (t, services) => {
  const { database } = services;
  const walletId = await addWallet(database, merchantA, { balance: 50 });
  const poor = await send(services, 'poor', bankPayout(walletId));
  t.match(poor, { status: 422, body: /Insufficient wallet balance/ });
  await database.updateTable('wallets').set({ balance: 1000 }).execute();
  t.same(
    await send(services, 'poor', bankPayout(walletId)),
    { ...poor, replayed: 'true' },
    'the stored rejection is repeated although there is money now',
  );
  t.equal((await send(services, 'new', bankPayout(walletId))).status, 201);

  t.equal((await send(services, 'wrong', bankPayout(walletId, { amount: 0 }))).status, 422);
  t.equal(
    (await send(services, 'wrong', bankPayout(walletId))).status,
    201,
    'a corrected body under the same key is accepted',
  );
});

onEachServices(
  'of concurrent requests under one key exactly one is executed, and the others get 409 at once',
  async (t, services) => {
    const { database } = services;
    const walletId = await addWallet(database, merchantA, { balance: 1000 });
    const strangers = [merchantB, sandboxOfA];
    const wallets = await Promise.all(strangers.map((tenant) => addWallet(database, tenant, { balance: 1000 })));
    const refused: object[] = [];
    const sent = await database.transaction().execute(async (transaction) => {
      // The first request waits for the lock of this wallet, or of the whole SQLite database.
      await transaction.updateTable('wallets').set({ balance: 1000 }).execute();
      const all = Array.from({ length: 20 }, async () => {
        const response = await send(services, 'k', bankPayout(walletId));
        if (response.status === 409) refused.push(response);
        return response;
      });
      await until(() => refused.length === 19);
      const meanwhile = strangers.map((tenant, index) =>
        send(services, 'k', bankPayout(wallets[index] ?? ''), '/dev/payouts', tenant),
      );
      return { all, meanwhile };
    });
    for (const { status } of await Promise.all(sent.meanwhile))
      t.equal(status, 201, 'the same key of another merchant is independent');
    const responses = await Promise.all(sent.all);
    t.same(responses.filter(({ status }) => status === 201).length, 1);
    for (const response of refused) t.match(response, { body: /still being carried out: try again/ });
    t.equal(await balanceOf(database, walletId), 900);
  },
);

t.test(
  'PostgreSQL: a request that another process is executing is not executed a second time',
  postgresAlone,
  async (t) => {
    const url = await createPostgresDatabase(t);
    const services = await servicesFixture(t, { url });
    const walletId = await addWallet(services.database, merchantA, { balance: 1000 });
    await services.database.transaction().execute(async (transaction) => {
      t.ok(await tryLock(transaction, JSON.stringify([merchantA.merchantId, merchantA.environment, 'k'])));
      t.match(await send(services, 'k', bankPayout(walletId)), { status: 409 });
      t.match(await send(services, 'other', bankPayout(walletId)), { status: 201 });
    });
    t.match(await send(services, 'k', bankPayout(walletId)), { status: 201, replayed: undefined });
    t.equal(await balanceOf(services.database, walletId), 800);
  },
);

onEachDatabase('if the response cannot be stored, the payout is rolled back', async (t, url) => {
  const services = await servicesFixture(t, { url });
  const { database } = services;
  const walletId = await addWallet(database, merchantA, { balance: 1000 });
  await database.schema.alterTable('answers').renameColumn('body', 'elsewhere').execute();
  t.equal((await send(services, 'k', bankPayout(walletId))).status, 500);
  t.equal(await balanceOf(database, walletId), 1000, 'the balance is unchanged');
  await database.schema.alterTable('answers').renameColumn('elsewhere', 'body').execute();
  t.match(await send(services, 'k', bankPayout(walletId)), { status: 201, replayed: undefined });
  t.equal(await balanceOf(database, walletId), 900);
});

onEachDatabase('a stored response outlives its process', async (t, url) => {
  const first = await servicesFixture(t, { url });
  const walletId = await addWallet(first.database, merchantA, { balance: 1000 });
  const given = await send(first, 'k', bankPayout(walletId));
  const second = await servicesFixture(t, { url });
  t.same(await send(second, 'k', bankPayout(walletId)), { ...given, replayed: 'true' });
  t.equal(await balanceOf(second.database, walletId), 900);
});

onEachServices('a response is stored for 24 hours, then deleted', async (t, services) => {
  const { clock, database, now: monotonic, pass } = services;
  const old = new StoredResponsePurge({ database, clock, monotonic });
  await old.forget();
  const walletId = await addWallet(database, merchantA, { balance: 1000 });
  const first = await send(services, 'k', bankPayout(walletId));
  await pass(day - 120_000);
  t.equal(await old.forget(), false);
  t.same(await send(services, 'k', bankPayout(walletId)), { ...first, replayed: 'true' });
  await pass(120_000);
  t.same(
    await send(services, 'k', bankPayout(walletId)),
    { ...first, replayed: 'true' },
    'the response is repeated until it is deleted',
  );
  await old.forget();
  t.same(await database.selectFrom('answers').selectAll().execute(), []);
  const later = await send(services, 'k', bankPayout(walletId));
  t.match(later, { status: 201, replayed: undefined });
  t.not(later.body, first.body);
});

onEachServices(
  'a clock that is set forward, briefly or permanently, deletes no response early',
  async (t, services) => {
    const { database, now, pass } = services;
    let wrong = 0;
    const clock = { now: () => sqlTime(now() + wrong) };
    const old = new StoredResponsePurge({ database, clock, monotonic: now });
    const walletId = await addWallet(database, merchantA, { balance: 1000 });
    const first = await send(services, 'k', bankPayout(walletId));
    const forgetsNothing = async (about: string) => {
      await old.forget();
      t.same(await send(services, 'k', bankPayout(walletId)), { ...first, replayed: 'true' }, about);
    };
    wrong = 2 * day;
    await forgetsNothing('at a start, before it is put right');
    wrong = 0;
    await forgetsNothing('put right');
    await pass(tenMinutes);
    for (const step of [2 * day, 0, 2 * day]) {
      wrong = step;
      await forgetsNothing(`wrong by ${step}`);
      await pass(1000);
      await forgetsNothing(`still wrong by ${step}`);
    }
    await pass(day - 60_000);
    await forgetsNothing('a day later, nearly');
    await pass(60_000);
    await old.forget();
    t.same(
      await database.selectFrom('answers').selectAll().execute(),
      [],
      'after 24 hours of real time the response is deleted',
    );
    t.equal(await balanceOf(database, walletId), 900);
  },
);

onEachServices(
  'after a clock was set forward, a process that starts later deletes no response early either',
  async (t, services) => {
    const { database, now, pass } = services;
    const late = 6 * hour;
    let wrong = 0;
    const clock = { now: () => sqlTime(now() + wrong) };
    const walletId = await addWallet(database, merchantA, { balance: 1000 });
    const storeBeforeJump = async (key: string) => {
      const stored = await send(services, key, bankPayout(walletId));
      await database
        .updateTable('answers')
        .set({ created_at: sqlTime(now() - late) })
        .where('key', '=', key)
        .execute();
      return { ...stored, replayed: 'true' };
    };
    const running = new StoredResponsePurge({ database, clock, monotonic: now });
    await running.forget();
    wrong = -late;
    await running.forget();
    const first = await storeBeforeJump('k');
    const created_at = sqlTime(now() - late);
    const rows = Array.from({ length: 1_500 }, (_, number) => ({
      ...{ merchant_id: 'm', environment: 'live' as const, key: `${number}`, fingerprint: 'f' },
      ...{ status: 201, body: '{}', created_at },
    }));
    await database.insertInto('answers').values(rows).execute();
    wrong = 0;
    while (await running.forget()); // more than one batch
    const open = await storeBeforeJump('open'); // like a transaction that was open during the jump
    await running.forget();

    const started = new StoredResponsePurge({ database, clock, monotonic: now });
    await started.forget();
    await pass(day - late + 120_000);
    await started.forget();
    t.same(await send(services, 'k', bankPayout(walletId)), first);
    t.same(await send(services, 'open', bankPayout(walletId)), open);
    t.equal(await balanceOf(database, walletId), 800);
    await pass(late);
    while (await started.forget());
    t.same(await database.selectFrom('answers').selectAll().execute(), [], '24 hours after the jump');
  },
);

onEachServices(
  'a process that starts just after a clock jump deletes nothing before a running process has renewed all responses',
  async (t, services) => {
    const { database, now, pass } = services;
    let wrong = 0;
    const clock = { now: () => sqlTime(now() + wrong) };
    const walletId = await addWallet(database, merchantA, { balance: 1000 });
    const first = await send(services, 'k', bankPayout(walletId));
    const created_at = sqlTime(now() - hour);
    const rows = Array.from({ length: 1_500 }, (_, number) => ({
      ...{ merchant_id: 'm', environment: 'live' as const, key: `${number}`, fingerprint: 'f' },
      ...{ status: 201, body: '{}', created_at },
    }));
    await database.insertInto('answers').values(rows).execute();
    const running = new StoredResponsePurge({ database, clock, monotonic: now });
    await running.forget();
    wrong = 2 * day;
    const started = new StoredResponsePurge({ database, clock, monotonic: now });
    await started.forget();
    await pass(60_000);
    t.equal(await running.forget(), true, 'the response under k is not renewed yet');
    await started.forget();
    while (await running.forget());
    await pass(tenMinutes);
    await started.forget();
    t.same(await send(services, 'k', bankPayout(walletId)), { ...first, replayed: 'true' });
    t.equal(await balanceOf(database, walletId), 900);
  },
);

t.test('two processes that notice a clock jump leave no response with its wrong age', postgresAlone, async (t) => {
  const { database, now } = await servicesFixture(t, { url: await createPostgresDatabase(t) });
  const rows = Array.from({ length: 1_500 }, (_, number) => ({
    ...{ merchant_id: 'm', environment: 'live' as const, key: `${number}`, fingerprint: 'f', status: 201, body: '{}' },
    created_at: sqlTime(now() - day + number),
  }));
  await database.insertInto('answers').values(rows).execute();
  let isRenewed = false;
  const other = await database.transaction().execute(async (transaction) => {
    t.equal(await renewStoredResponses(transaction, sqlTime(now() + 1)), true);
    const waiting = renewStoredResponses(database, sqlTime(now())).finally(() => (isRenewed = true));
    // If this transaction ended before the other process had read the same batch, that process would renew the rest.
    const blocked = sql<{ count: number }>`select count(*) as count from pg_locks where not granted and pid in
      (select pid from pg_stat_activity where datname = current_database())`;
    await until(async () => isRenewed || Number((await blocked.execute(database)).rows[0]?.count) > 0);
    t.equal(isRenewed, false);
    return { waiting };
  });
  t.equal(await other.waiting, true, 'the other process renewed this batch, but not the rest');
});

onEachServices('a clock jump is not forgotten while the database fails', async (t, services) => {
  const { database, now, pass } = services;
  let wrong = 0;
  const clock = { now: () => sqlTime(now() + wrong) };
  const old = new StoredResponsePurge({ database, clock, monotonic: now });
  await old.forget();
  await pass(tenMinutes);
  await old.forget();
  const walletId = await addWallet(database, merchantA, { balance: 1000 });
  const first = await send(services, 'k', bankPayout(walletId));
  wrong = 2 * day;
  await database.schema.alterTable('answers').renameColumn('created_at', 'elsewhere').execute();
  await t.rejects(old.forget());
  await database.schema.alterTable('answers').renameColumn('elsewhere', 'created_at').execute();
  await old.forget();
  t.same(await send(services, 'k', bankPayout(walletId)), { ...first, replayed: 'true' });
});

t.test('PostgreSQL: a process with a wrong clock deletes no responses', postgresAlone, async (t) => {
  const services = await servicesFixture(t, { url: await createPostgresDatabase(t) });
  const { database } = services;
  const clock = databaseClock(database, { now: () => Date.now() + 2 * day });
  const walletId = await addWallet(database, merchantA, { balance: 1000 });
  await send(services, 'k', bankPayout(walletId));
  await database.updateTable('answers').set({ created_at: clock.now() }).execute();
  let elapsed = 0;
  const old = new StoredResponsePurge({ database, clock, monotonic: () => (elapsed += tenMinutes) });
  for (let attempt = 0; attempt < 3; attempt += 1) t.equal(await old.forget(), false);
  t.equal((await database.selectFrom('answers').selectAll().execute()).length, 1);
});

t.test('an Idempotency-Key is 1 to 255 visible ASCII characters', async (t) => {
  const services = await servicesFixture(t);
  const walletId = await addWallet(services.database, merchantA, { balance: 1000 });
  const message = 'Idempotency-Key must be given once, and be 1 to 255 visible ASCII characters without spaces';
  for (const key of ['', ' ', 'a b', 'a, b', 'k'.repeat(256), 'k\u00e9', '\u007f']) {
    const response = await send(services, key, bankPayout(walletId));
    t.equal(response.status, 422, JSON.stringify(key));
    t.same(JSON.parse(response.body), {
      ...{ success: false, message },
      data: { code: 'validation_failed', errors: [{ path: 'Idempotency-Key', message }] },
    });
  }
  t.equal(await balanceOf(services.database, walletId), 1000);
  t.equal((await send(services, 'k'.repeat(255), bankPayout(walletId))).status, 201);
  t.equal((await send(services, '"~!#\'', bankPayout(walletId))).status, 201);
});
