import t, { type Test } from 'tap';
import { startServices } from '../../src/services/start-services.js';
import { createPostgresDatabase, postgresAlone } from '../database/each-database.js';
import { ManualTime } from '../registry/manual-time.js';
import { addWallet, balanceOf, bankPayout, identityOf, merchantA, patient } from '../services/services-fixture.js';

const day = 24 * 60 * 60 * 1000;
const delayMilliseconds = day;

/** A services process on a machine whose clock is wrong by so many milliseconds. */
async function processOf(t: Test, databaseUrl: string, wrongBy: number) {
  const bank = { delayMilliseconds, failingAccounts: [] };
  const parts = { assertions: null, bank, pool: patient, timers: new ManualTime() };
  const clock = { now: () => Date.now() + wrongBy };
  const services = await startServices({ host: '127.0.0.1', port: 0, databaseUrl, clock, ...parts });
  t.teardown(() => services.close());
  return services;
}

async function pay(url: string, walletId: string, key: string) {
  const headers = { ...identityOf(merchantA), 'content-type': 'application/json', 'idempotency-key': key };
  const body = JSON.stringify(bankPayout(walletId));
  const answer = await fetch(`${url}/dev/payouts`, { method: 'POST', headers, body });
  return { status: answer.status, body: await answer.text(), replayed: answer.headers.get('idempotency-replayed') };
}

// Each process judged by its own clock how old an answer is, and when a payout is due.
t.test('processes whose clocks differ by more than a day pay once under a key', postgresAlone, async (t) => {
  const databaseUrl = await createPostgresDatabase(t);
  const right = await processOf(t, databaseUrl, 0);
  const { database } = right;
  const all = [right, await processOf(t, databaseUrl, 2 * day), await processOf(t, databaseUrl, -2 * day)];
  const walletId = await addWallet(database, merchantA, { balance: 1000 });
  for (const [index, one] of all.entries()) {
    const first = await pay(one.url, walletId, `key-${index}`);
    t.match(first, { status: 201, replayed: null });
    for (const other of all) {
      t.same(await pay(other.url, walletId, `key-${index}`), { ...first, replayed: 'true' });
    }
  }
  t.equal(await balanceOf(database, walletId), 700);

  const payouts = await database.selectFrom('payouts').select(['created_at', 'due_at']).orderBy('sequence').execute();
  const times = payouts.map((one) => one.created_at);
  t.same(
    times,
    times.toSorted((a, b) => a - b),
    'and what they record is in the order of time',
  );
  for (const one of payouts) t.equal(one.due_at, one.created_at + delayMilliseconds);
});
