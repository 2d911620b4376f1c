import { readdirSync, readFileSync } from 'node:fs';
import { once } from 'node:events';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import t from 'tap';
import { failureCodeEntries } from '../../src/services/failure-codes.js';
import { startServices } from '../../src/services/start-services.js';
import { systemTimers } from '../../src/cli/compose/system-clock.js';
import {
  addWallet,
  bankPayout,
  merchantA,
  onEachServices,
  sandboxOfA,
  servicesFixture,
  type ApiResponse,
} from './services-fixture.js';

const person = { email: 'ada@example.com', firstName: 'Ada', lastName: 'Obi' };
const recipient = '+2348012345678';

/** Sends bytes to the HTTP parser of the services; returns the response envelope. */
async function wire(url: string, bytes: string): Promise<ApiResponse> {
  const socket = connect(Number(new URL(url).port), '127.0.0.1');
  await once(socket, 'connect');
  socket.on('error', () => undefined);
  socket.write(bytes);
  const received = await text(socket);
  return {
    status: Number(received.split(' ')[1]),
    body: JSON.parse(received.slice(received.indexOf('\r\n\r\n'))) as ApiResponse['body'],
  };
}

onEachServices('each failure has its code, status and message', async (t, { call, database }) => {
  const walletId = await addWallet(database, merchantA, { balance: 200, isDefault: true });
  const id = '0b8f6f0e-4c9b-4a35-9b52-3a4d5f6e7a80';
  const keyed = { 'idempotency-key': 'k' };
  await call(merchantA, 'POST', '/dev/customers', { body: person, headers: keyed });
  const paid = await call(merchantA, 'POST', '/dev/payouts', {
    body: bankPayout(walletId, { reference: 'invoice-42' }),
  });
  const big = `"${'x'.repeat(1024 * 1024)}"`;
  const order = { amount: 101, currency: 'NGN', recipient };
  const cases: readonly (readonly [code: string, response: ApiResponse])[] = [
    ['bad_request', await call(merchantA, 'GET', '/dev/payouts/%zz')],
    ['forbidden', await call(null, 'GET', '/dev/payouts')],
    ['not_found', await call(merchantA, 'GET', `/dev/wallets/${id}`)],
    ['route_not_found', await call(merchantA, 'GET', '/nowhere')],
    ['method_not_allowed', await call(merchantA, 'PUT', '/dev/payouts')],
    ['email_taken', await call(merchantA, 'POST', '/dev/customers', { body: person })],
    [
      'reference_taken',
      await call(merchantA, 'POST', '/dev/payouts', { body: bankPayout(walletId, { reference: 'invoice-42' }) }),
    ],
    ['body_too_large', await call(merchantA, 'POST', '/payouts', { payload: big })],
    [
      'unsupported_media_type',
      await call(merchantA, 'POST', '/payouts', { payload: 'x', headers: { 'content-type': 'text/plain' } }),
    ],
    ['insufficient_balance', await call(merchantA, 'POST', '/payouts', { body: order })],
    ['no_default_wallet', await call({ ...merchantA, merchantId: 'poor' }, 'POST', '/payouts', { body: order })],
    ['validation_failed', await call(merchantA, 'POST', '/payouts', { body: { currency: 'NGN', recipient } })],
    [
      'idempotency_key_reused',
      await call(merchantA, 'POST', '/dev/customers', { body: { ...person, firstName: 'Eve' }, headers: keyed }),
    ],
  ];
  const table = new Map<string, (typeof failureCodeEntries)[number][1]>(failureCodeEntries);
  for (const [code, { status, body }] of cases) {
    const entry = table.get(code);
    t.equal(status, entry?.status, code);
    t.equal(body.message, entry?.message, `${code}: the documented example has the same message`);
    const details = entry?.details === undefined ? {} : { payoutId: (paid.body.data as { id: string }).id };
    t.same(body.data, { code, ...details, errors: entry?.problems ?? [] }, code);
  }
  const sandbox = await call(sandboxOfA, 'POST', '/payouts', { body: order });
  t.match(sandbox.body.message, /for the test environment: .*\(currency NGN, environment test\)$/);
  t.notMatch(sandbox.body.message, /merchant-gateway|--/, 'the message for merchants mentions no command');
});

t.test('failures of the HTTP parser, the database and the process have codes too', async (t) => {
  const services = await startServices({
    ...{ host: '127.0.0.1', port: 0, databaseUrl: 'sqlite::memory:', timers: systemTimers, assertions: null },
    clock: { now: () => Date.now() },
    bank: { delayMilliseconds: 3_600_000, failingAccounts: [] },
  });
  t.teardown(() => services.close());
  const coded = (status: number, code: string) => ({ status, body: { success: false, data: { code, errors: [] } } });
  t.match(await wire(services.url, 'GET / HTTP/1.1\r\nbad header\r\n\r\n'), coded(400, 'bad_request'));
  const long = `GET / HTTP/1.1\r\nx: ${'y'.repeat(20_000)}\r\n\r\n`;
  t.match(await wire(services.url, long), coded(431, 'headers_too_large'));

  const { call, database } = await servicesFixture(t);
  await database.schema.dropTable('answers').execute();
  const headers = { 'idempotency-key': 'k' };
  t.match(await call(merchantA, 'POST', '/dev/customers', { body: person, headers }), coded(500, 'internal_error'));
  await database.destroy();
  t.match(await call(merchantA, 'GET', '/dev/wallets'), coded(500, 'internal_error'));
  t.match(await call(null, 'GET', '/readyz'), coded(503, 'service_unavailable'));
});

t.test('every conflict has its own code, and every code is documented', (t) => {
  const known = new Set<string>(failureCodeEntries.map(([code]) => code));
  const files = readdirSync('src/services', { recursive: true, encoding: 'utf8' }).filter((name) =>
    name.endsWith('.ts'),
  );
  const given = files.flatMap((file) => {
    const source = readFileSync(`src/services/${file}`, 'utf8');
    const conflicts = source.matchAll(/new Refusal\(409,[^;]*?(?:'([a-z_]+)')?(?:, details)?\);/g);
    const others = source.matchAll(/Refusal\.invalid\(\[[^;]*\], '([a-z_]+)'\);/g);
    return [...conflicts, ...others].map(([refusal, code]) => ({ refusal: `${file}: ${refusal}`, code }));
  });
  // The codes of the operators' API are in a table in docs/services.md.
  const documented = readFileSync('docs/services.md', 'utf8');
  for (const { refusal, code = '' } of given) {
    const isForOperators = /^(?:operators|ledger)\//.test(refusal);
    t.ok(isForOperators ? documented.includes(`\n| \`${code}\` | `) : known.has(code), refusal);
  }
  t.ok(given.length >= 6, `${given.length} conflicts found`);
  t.end();
});
