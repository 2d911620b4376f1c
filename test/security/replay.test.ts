import { generateKeyPairSync } from 'node:crypto';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import t, { type Test } from 'tap';
import { openIdentity } from '../../src/cli/compose/identity.js';
import { openAssertionVerifier } from '../../src/cli/compose/services.js';
import { systemClock, systemTimers } from '../../src/cli/compose/system-clock.js';
import { loadConfig } from '../../src/config/load.js';
import { startServices } from '../../src/services/start-services.js';
import { createPostgresDatabase, postgresAlone } from '../database/each-database.js';
import { acceptingCredential } from '../policy/fixtures.js';
import { ManualTime } from '../registry/manual-time.js';
import { addWallet, balanceOf, bankPayout, identityOf, merchantA, patient } from '../services/services-fixture.js';

/*
 * An attacker in control of one service has the assertions that it received. The other services must not accept them, also if
 * one process serves all of them.
 */

const bank = { delayMilliseconds: 60_000, failingAccounts: [] };

/**
 * Starts services, and the signer of the gateway's assertions, with one configuration. The returned function requests a
 * path with an assertion for an upstream, and returns the status.
 */
async function deployment(t: Test, options = '') {
  const { privateKey } = generateKeyPairSync('ed25519');
  const directory = t.testdir({ 'key.pem': privateKey.export({ type: 'pkcs8', format: 'pem' }) });
  const config = loadConfig({ text: `${options}\nidentity: { signingKeyFile: ${directory}/key.pem }` });
  const services = await startServices({
    ...{ host: '127.0.0.1', port: 0, databaseUrl: 'sqlite::memory:', bank },
    ...{ assertions: await openAssertionVerifier(config), clock: systemClock, timers: systemTimers },
  });
  t.teardown(() => services.close());
  const identity = await openIdentity(config);
  if (identity === null) throw new Error('there is no key to sign with');

  return async (upstream: string, path: string): Promise<number> => {
    const credential = acceptingCredential('live');
    const socket = connect(Number(new URL(services.url).port), '127.0.0.1');
    socket.write(
      `GET ${path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\nx-merchant-id: ${credential.merchantId}\r\nx-merchant-environment: live\r\n` +
        `x-gateway-assertion: ${await identity.assertionFor(credential, upstream)}\r\n\r\n`,
    );
    return Number((await text(socket)).split(' ')[1]);
  };
}

t.test('assertion replay: an assertion is accepted only on the paths of its own upstream', async (t) => {
  const statusOf = await deployment(t);
  const paths: Readonly<Record<string, readonly string[]>> = {
    transactions: ['/transactions', '/transactions?page=1', '/dev/transactions'],
    payouts: ['/payouts', '/dev/payouts', '/dev/wallets', '/dev/payouts?search=/transactions'],
    customers: ['/dev/customers', '/dev/customers?page=1#/dev/payouts'],
  };
  for (const upstream of Object.keys(paths)) {
    for (const [owner, owned] of Object.entries(paths)) {
      for (const path of owned) {
        t.equal((await statusOf(upstream, path)) === 403, owner !== upstream, `${upstream} at ${path}`);
      }
    }
  }
  t.equal(await statusOf('payouts', '/dev/payouts'), 200);
});

t.test('assertion replay: no spelling of a path makes another upstream’s assertion valid', async (t) => {
  const statusOf = await deployment(t);
  const spellings = [
    ...['/dev/%70ayouts', '/%64ev/payouts', '/dev/payouts#/customers', '/dev/payouts%3f/x', '/dev//payouts'],
    ...['http://127.0.0.1/dev/payouts', '/dev/./payouts', '/dev/x/../payouts', '/dev/payouts;/x', '/dev%2fpayouts'],
  ];
  for (const path of spellings) {
    t.not(await statusOf('customers', path), 200, path);
    t.not(await statusOf('transactions', path), 200, path);
  }
  t.equal(await statusOf('customers', '/dev/%70ayouts'), 403);
  t.equal(await statusOf('payouts', '/dev/%70ayouts'), 200, 'the router decodes it to the path of its own upstream');
});

t.test('assertion replay: a path without a route accepts no assertion', async (t) => {
  const statusOf = await deployment(t, 'routes: [{ path: /payouts, upstream: payouts, resource: payouts }]');
  t.equal(await statusOf('payouts', '/payouts'), 405, 'the assertion is accepted: the path has no GET');
  t.equal(await statusOf('payouts', '/nowhere'), 403);
  for (const upstream of ['payouts', 'transactions']) t.equal(await statusOf(upstream, '/transactions'), 403);
});

t.test('assertion replay: the longest matching route decides the upstream', async (t) => {
  const route = (path: string, upstream: string): string =>
    `{ path: ${path}, upstream: ${upstream}, resource: payouts }`;
  const routes = `routes: [${route('/dev', 'customers')}, ${route('/dev/payouts/archive', 'transactions')}]`;
  const statusOf = await deployment(t, routes);
  t.equal(
    await statusOf('transactions', '/dev/payouts/archive'),
    404,
    'the assertion is accepted: there is no such payout',
  );
  t.equal(await statusOf('customers', '/dev/payouts/archive'), 403);
  t.equal(await statusOf('customers', '/dev/payouts'), 200);
});

t.test('assertion replay: an upstream named like the former audience gets no access to others', async (t) => {
  const url = '{ url: "http://127.0.0.1:7080" }';
  const statusOf = await deployment(
    t,
    `upstreams: { payouts: ${url}, transactions: ${url}, customers: ${url}, merchant-gateway: ${url} }`,
  );
  t.equal(await statusOf('merchant-gateway', '/payouts'), 403);
  t.equal(await statusOf('payouts', '/dev/payouts'), 200);
});

const day = 24 * 60 * 60 * 1000;
const delayMilliseconds = day;

/** Starts a services process on a machine whose clock is off by `skewMilliseconds`. */
async function processOf(t: Test, databaseUrl: string, skewMilliseconds: number) {
  const bank = { delayMilliseconds, failingAccounts: [] };
  const parts = { assertions: null, bank, pool: patient, timers: new ManualTime() };
  const clock = { now: () => Date.now() + skewMilliseconds };
  const services = await startServices({ host: '127.0.0.1', port: 0, databaseUrl, clock, ...parts });
  t.teardown(() => services.close());
  return services;
}

async function pay(url: string, walletId: string, key: string) {
  const headers = { ...identityOf(merchantA), 'content-type': 'application/json', 'idempotency-key': key };
  const body = JSON.stringify(bankPayout(walletId));
  const response = await fetch(`${url}/dev/payouts`, { method: 'POST', headers, body });
  const replayed = response.headers.get('idempotency-replayed');
  return { status: response.status, body: await response.text(), replayed };
}

// Regression: each process determined by its own clock how old a stored response is, and when a payout is due.
t.test(
  'payout replay under clock skew: processes more than a day apart pay once per idempotency key',
  postgresAlone,
  async (t) => {
    const databaseUrl = await createPostgresDatabase(t);
    const exact = await processOf(t, databaseUrl, 0);
    const { database } = exact;
    const all = [exact, await processOf(t, databaseUrl, 2 * day), await processOf(t, databaseUrl, -2 * day)];
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
      'the recorded times are in order',
    );
    for (const one of payouts) t.equal(one.due_at, one.created_at + delayMilliseconds);
  },
);
