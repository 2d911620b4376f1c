import { once } from 'node:events';
import { statSync } from 'node:fs';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import t from 'tap';
import { DatabaseError } from '../../src/database/database-error.js';
import { startConfiguredServices } from '../../src/cli/compose/services.js';
import { loadConfig } from '../../src/config/load.js';
import { startServices } from '../../src/services/start-services.js';
import { createLogger } from '../../src/telemetry/logger.js';
import { ManualTime, until } from '../registry/manual-time.js';
import { addWallet, bankPayout, identityOf, merchantA } from './services-fixture.js';

const time = new ManualTime();
const parts = { assertions: null, clock: time, timers: time, bank: { delayMilliseconds: 1000, failingAccounts: [] } };

t.test('acknowledged records survive a restart', async (t) => {
  const databaseUrl = `sqlite:${t.testdir()}/deeper/down/services.db`;
  const first = await startServices({ host: '127.0.0.1', port: 0, databaseUrl, ...parts });
  const walletId = await addWallet(first.database, merchantA, { balance: 1000 });
  const created = await send(first.url, 'POST', '/dev/payouts', bankPayout(walletId));
  t.equal(created.status, 201);
  await first.close();
  await t.rejects(fetch(first.url), 'the services have stopped listening');

  const second = await startServices({ host: '127.0.0.1', port: 0, databaseUrl, ...parts });
  t.teardown(() => second.close());
  const { data } = created.body as { data: { id: string } };
  t.match(await send(second.url, 'GET', `/dev/payouts/${data.id}`), { status: 200, body: { data } });
  t.match(await send(second.url, 'GET', `/dev/wallets/${walletId}`), { body: { data: { balance: 900 } } });
  t.match(await send(second.url, 'GET', '/transactions'), { body: { meta: { total_records: 2 } } });
});

t.test('the services report their listening address, also for IPv6', async (t) => {
  const services = await startServices({ host: '::1', port: 0, databaseUrl: 'sqlite::memory:', ...parts });
  t.teardown(() => services.close());
  t.match(services.url, /^http:\/\/\[::1\]:\d+$/);
  t.equal((await send(services.url, 'GET', '/transactions')).status, 200);
});

t.test('a failed start leaves nothing open', async (t) => {
  const services = await startServices({ host: '127.0.0.1', port: 0, databaseUrl: 'sqlite::memory:', ...parts });
  t.teardown(() => services.close());
  const port = Number(new URL(services.url).port);
  const options = { host: '127.0.0.1', port, databaseUrl: 'sqlite::memory:', ...parts };
  const path = `${t.testdir()}/services.db`;
  await t.rejects(startServices({ ...options, databaseUrl: `sqlite:${path}` }), {
    name: 'OperatorError',
    cause: { code: 'EADDRINUSE' },
  });
  t.equal(statSync(`${path}-wal`).size, 0, 'the database is closed');
  await t.rejects(startServices({ ...options, databaseUrl: 'postgres://user:secret@127.0.0.1:1/x' }), DatabaseError);
});

t.test('a second identity header on the wire is rejected', async (t) => {
  const services = await startServices({ host: '127.0.0.1', port: 0, databaseUrl: 'sqlite::memory:', ...parts });
  t.teardown(() => services.close());
  const response = await wire(
    services.url,
    'GET /transactions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nx-merchant-environment: live\r\n' +
      'x-merchant-id: merchant_a\r\nx-merchant-id: merchant_b\r\n\r\n',
  );
  t.match(response, /^HTTP\/1\.1 403 /);
  t.match(response, /\{"success":false,"message":"Forbidden","data":\{"code":"forbidden","errors":\[\]\}\}$/);
});

t.test('the response to a malformed request has the envelope', async (t) => {
  const services = await startServices({ host: '127.0.0.1', port: 0, databaseUrl: 'sqlite::memory:', ...parts });
  t.teardown(() => services.close());
  const malformed = await wire(services.url, 'GET / HTTP/1.1\r\nbad header\r\n\r\n');
  t.match(malformed, /^HTTP\/1\.1 400 Bad Request\r\n/);
  t.match(
    malformed,
    /\r\n\r\n\{"success":false,"message":"Bad Request","data":\{"code":"bad_request","errors":\[\]\}\}$/,
  );
  const overflow = await wire(services.url, `GET / HTTP/1.1\r\nx: ${'y'.repeat(20_000)}\r\n\r\n`);
  t.match(overflow, /^HTTP\/1\.1 431 .*"message":"Request Header Fields Too Large"/s);
  for (const response of [malformed, overflow]) t.match(response, '\r\ncache-control: no-store\r\n');
});

t.test(
  'a request head within limits.headerBytes is accepted together with the headers that the gateway adds',
  async (t) => {
    const config = loadConfig({
      text: 'services: { listen: { port: 0 }, database: { url: "sqlite::memory:" } }\nlimits: { headerBytes: 32768 }',
    });
    const services = await startConfiguredServices(config, createLogger('fatal'));
    t.teardown(() => services.close());
    const head = 'GET /transactions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n';
    const identity = 'x-merchant-id: merchant_a\r\nx-merchant-environment: live\r\n';
    const statusWith = async (bytes: number) =>
      (await wire(services.url, `${head}${identity}x: ${'y'.repeat(bytes)}\r\n\r\n`)).slice(0, 12);
    t.equal(await statusWith(32_768), 'HTTP/1.1 200');
    t.equal(await statusWith(32_768 + 16_384), 'HTTP/1.1 431');
  },
);

t.test('a parser error never replaces the response to the previous pipelined request', async (t) => {
  const services = await startServices({ host: '127.0.0.1', port: 0, databaseUrl: 'sqlite::memory:', ...parts });
  t.teardown(() => services.close());
  const identity = 'x-merchant-id: merchant_a\r\nx-merchant-environment: live\r\n';
  const request = `GET /transactions HTTP/1.1\r\nhost: localhost\r\n${identity}\r\n`;
  const response = await wire(services.url, `${request}NOT HTTP\r\n\r\n`);
  t.notMatch(response, /^HTTP\/1\.1 400/);
});

async function send(base: string, method: string, path: string, body?: unknown) {
  const response = await fetch(`${base}${path}`, {
    method,
    headers: { ...identityOf(merchantA), ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  return { status: response.status, body: await response.json() };
}

async function wire(base: string, bytes: string): Promise<string> {
  const socket = connect(Number(new URL(base).port), '127.0.0.1');
  await once(socket, 'connect');
  socket.on('error', () => undefined);
  socket.write(bytes);
  return text(socket).catch(() => '');
}

t.test('an inconsistent ledger is reported at the start of the services by a warning and by metrics', async (t) => {
  const databaseUrl = `sqlite:${t.testdir()}/services.db`;
  const first = await startServices({ host: '127.0.0.1', port: 0, databaseUrl, ...parts });
  const walletId = await addWallet(first.database, merchantA, { balance: 1000 });
  await first.database.updateTable('wallets').set({ balance: 999 }).execute();
  await first.close();

  const logged: object[] = [];
  const logger = { error: (details: object) => void logged.push(details) };
  const second = await startServices({ host: '127.0.0.1', port: 0, databaseUrl, logger, ...parts });
  t.teardown(() => second.close());
  const readiness = async () =>
    (await fetch(`${second.url}/readyz`)).json() as Promise<{ data: { warnings?: string[] } }>;
  // If the machine pauses during the check of readiness, the check exceeds its time limit, and the response has no
  // warnings.
  await until(async () => ((await readiness()).data.warnings ?? []).length > 0);
  t.same(logged, [{ wallets: [walletId], mismatchedWallets: 1, currencies: ['live NGN'] }]);
  const response = await fetch(`${second.url}/readyz`);
  t.equal(response.status, 200, 'the services stay ready');
  t.notMatch(await response.text(), walletId, 'the unauthenticated response contains no wallet id');
  const metrics = await (await fetch(`${second.url}/metrics`)).text();
  t.match(metrics, /^services_ledger_mismatched_wallets 1$/m);
  t.match(metrics, /^services_ledger_unbalanced_currencies 1$/m);
  t.match(metrics, /^services_ledger_checked_timestamp_seconds [\d.e+]+$/m);
});
