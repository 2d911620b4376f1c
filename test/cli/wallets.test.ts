import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import t, { type Test } from 'tap';
import { createSelfSigned } from '../../src/cli/dev/self-signed.js';
import { run as runCommand } from '../../src/cli/run.js';
import { openServicesDatabase } from '../../src/services/services-database.js';
import { startServices } from '../../src/services/start-services.js';
import { freePort } from '../adapters/redis-server.js';
import { killAtEnd, productCommand } from '../product-command.js';
import { ManualTime } from '../registry/manual-time.js';
import { registryFixture, token as adminToken } from '../registry/registry-fixture.js';
import { operatorsToken } from '../services/operators-fixture.js';
import { balanceOf } from '../services/services-fixture.js';
import { startServer } from '../start-server.js';

const directory = await mkdtemp(path.join(tmpdir(), 'merchant-gateway-wallets-'));
t.teardown(() => rm(directory, { recursive: true, force: true }));
const tokenFile = path.join(directory, 'operators-token');
const adminTokenFile = path.join(directory, 'admin-token');
await writeFile(tokenFile, `${operatorsToken}\n`, { mode: 0o600 });
await writeFile(adminTokenFile, `${adminToken}\n`, { mode: 0o600 });
delete process.env.MERCHANT_GATEWAY_REGISTRY;
delete process.env.MERCHANT_GATEWAY_TOKEN;
delete process.env.MERCHANT_GATEWAY_SERVICES;
delete process.env.MERCHANT_GATEWAY_SERVICES_TOKEN;

const time = new ManualTime();
const parts = { assertions: null, clock: time, timers: time, bank: { delayMilliseconds: 1000, failingAccounts: [] } };

/**
 * Starts services with an operators' API, and a registry. `wallets` of the result runs a `wallets` command against
 * them.
 */
async function startBoth(t: Test) {
  const operators = { host: '127.0.0.1', port: 0, token: operatorsToken, tls: null };
  const at = { host: '127.0.0.1', port: 0, databaseUrl: 'sqlite::memory:', operators };
  const services = await startServices({ ...at, ...parts });
  t.teardown(() => services.close());
  const registry = await registryFixture(t, 'sqlite::memory:');
  const registryUrl = await registry.app.listen({ host: '127.0.0.1', port: 0 });
  const { body } = await registry.call('POST', '/merchants', { body: { name: 'Shop' } });
  const merchantId = (body.data as { id: string }).id;
  const lookUp = ['--registry', registryUrl, '--registry-token-file', adminTokenFile];
  const wallets = (...args: string[]) => run(t, services.operatorsUrl ?? '', ...args);
  return { services, merchantId, lookUp, wallets };
}

async function run(t: Test, url: string, ...args: string[]) {
  let [stdout, stderr] = ['', ''];
  const io = { out: (text: string) => (stdout += text), err: (text: string) => (stderr += text) };
  const status = await runCommand(
    ['wallets', args[0] ?? '', '--services', url, '--token-file', tokenFile, ...args.slice(1)],
    io,
  );
  for (const secret of [operatorsToken, adminToken])
    t.notOk((stdout + stderr).includes(secret), 'the output contains no token');
  t.notMatch(stderr, /\n {4}at /, 'no stack trace');
  return { status, stdout, stderr };
}

/** An address on which nothing listens. */
const nowhere = `http://127.0.0.1:${await freePort()}`;

const inNaira = ['--currency', 'NGN', '--environment', 'live'];

t.test('a wallet is created, funded, withdrawn from, listed and shown', async (t) => {
  const { services, merchantId, lookUp, wallets } = await startBoth(t);
  const created = await wallets('create', '--merchant', merchantId, ...inNaira, ...lookUp);
  t.equal(created.stderr, '');
  t.equal(created.status, 0);
  t.match(
    created.stdout,
    /^wallet {7}[0-9a-f-]{36}\nmerchant {5}m_\w+\nenvironment {2}live\ncurrency {5}NGN\nbalance {6}0 \(minor units\)\n/,
  );
  const walletId = /[0-9a-f-]{36}/.exec(created.stdout)?.[0] ?? '';
  const again = await wallets('create', '--merchant', merchantId, ...inNaira, ...lookUp);
  t.match(again.stdout, `wallet       ${walletId}\n`);
  t.match(again.stdout, /\nThe wallet already existed\.\n$/);

  const order = [walletId, '--amount', '150000', ...inNaira, '--reason', 'Deposit', '--actor', 'ada'];
  const funded = await wallets('fund', ...order, '--reference', 'deposit-1');
  t.equal(funded.stderr, '', 'a reference given by the operator is not printed');
  t.match(funded.stdout, `from         float\nto           ${walletId}\namount       150000 NGN (minor units)\n`);
  t.match(funded.stdout, /\nby +ada\n/);
  t.match(funded.stdout, /\nThe balance of the wallet is 150000 NGN \(minor units\)\.\n$/);
  const repeated = await wallets('fund', ...order, '--reference', 'deposit-1');
  t.equal(repeated.status, 0);
  t.match(
    repeated.stdout,
    /\nThe money was already moved under this reference, and was not moved again\. Directly after the movement, the balance was 150000 \(minor units\)\.\n$/,
  );
  t.equal(await balanceOf(services.database, walletId), 150_000);

  const other = await wallets('fund', ...order.with(2, '1'), '--reference', 'deposit-1');
  t.equal(other.status, 1);
  t.match(
    other.stderr,
    /^The operators' API rejected the request \(status 409\): The reference deposit-1 already belongs to a different movement/,
  );

  t.equal((await wallets('withdraw', walletId, '--amount', '50000', ...inNaira, '--reason', 'Back')).status, 0);
  const overdraft = await wallets('withdraw', walletId, '--amount', '100001', ...inNaira, '--reason', 'All');
  t.equal(overdraft.status, 1);
  t.match(
    overdraft.stderr,
    /The operators' API rejected the request \(1 problem\):\n {2}Insufficient wallet balance\. The reference \S+ cannot be used again: use a new reference for the next attempt\n$/,
  );

  const list = await wallets('list', '--merchant', merchantId, '--currency', 'NGN', '--environment', 'live');
  t.match(list.stdout, /^WALLET +MERCHANT +ENVIRONMENT +CURRENCY +BALANCE \(MINOR UNITS\) +DEFAULT\n/);
  t.match(list.stdout, new RegExp(`\\n${walletId} +${merchantId} +live +NGN +100000 +yes\\n1 wallet\\.\\n$`));
  t.match((await wallets('show', walletId)).stdout, 'balance      100000 (minor units)\n');
  const entries = await wallets('entries', walletId);
  t.match(entries.stdout, /\n\S+ +wallet +float +50000 NGN +100000 +successful +withdraw-\w{26} +\S+ +Back\n/);
  t.match(
    entries.stdout,
    /\n\S+ +float +wallet +150000 NGN +150000 +successful +deposit-1 +ada +Deposit\n2 entries\.\n$/,
  );
  t.match((await wallets('accounts')).stdout, /\nlive +NGN +float +-100000\nlive +NGN +wallets +100000\n$/);
  const json = JSON.parse((await wallets('show', walletId, '--json')).stdout) as object;
  t.match(json, { id: walletId, merchantId, balance: 100_000, currency: 'NGN', environment: 'live', isDefault: true });
  t.equal((await wallets('list', '--merchant', 'nobody')).stdout, 'No wallets.\n');
});

t.test('a wallet for a merchant unknown to the registry is rejected', async (t) => {
  const { services, lookUp, wallets } = await startBoth(t);
  const unknown = await wallets('create', '--merchant', 'm_unknown', ...inNaira, ...lookUp);
  t.equal(unknown.status, 1);
  t.equal(
    unknown.stderr,
    'The registry has no merchant m_unknown, so no wallet was created: see "merchant-gateway merchants list".\n',
  );
  const away = ['--registry', nowhere, '--registry-token-file', adminTokenFile];
  const unasked = await wallets('create', '--merchant', 'm_unknown', ...inNaira, ...away);
  t.equal(unasked.status, 1);
  t.match(unasked.stderr, `Cannot reach the registry at ${nowhere}/: the connection was refused`);
  const tokenless = await wallets('create', '--merchant', 'm_unknown', ...inNaira, '--registry', nowhere);
  t.equal(tokenless.status, 2);
  t.match(tokenless.stderr, /a token is required\. Give its file with --registry-token-file, .*--no-registry-check/);
  t.same(await services.database.selectFrom('wallets').selectAll().execute(), [], 'no wallet was created');
  t.equal((await wallets('create', '--merchant', 'm_1', ...inNaira, '--no-registry-check')).status, 0);
});

t.test('an additional wallet is printed with the id that makes its creation idempotent', async (t) => {
  const { services, wallets } = await startBoth(t);
  const create = ['create', '--merchant', 'm_1', ...inNaira, '--no-registry-check'];
  await wallets(...create);
  const additional = await wallets(...create, '--additional');
  const id = /--id ([0-9a-f-]{36})\n$/.exec(additional.stderr)?.[1] ?? '';
  t.match(additional.stdout, `wallet       ${id}\n`);
  t.match((await wallets(...create, '--additional', '--id', id)).stdout, /The wallet already existed\.\n$/);
  t.equal((await services.database.selectFrom('wallets').selectAll().execute()).length, 2);
  const misplaced = await wallets(...create, '--id', id);
  t.equal(misplaced.status, 2, '--id without --additional would have no effect');
  t.match(misplaced.stderr, /--id requires --additional/);
});

t.test('command-line errors are reported before any request is sent', async (t) => {
  const { services, wallets } = await startBoth(t);
  await wallets('create', '--merchant', 'm_1', ...inNaira, '--no-registry-check');
  const { id } = await services.database.selectFrom('wallets').select('id').executeTakeFirstOrThrow();
  const fund = ['fund', id, '--reason', 'x'];
  for (const [args, message] of [
    [[...fund, ...inNaira], /required option '--amount <number>'/],
    ...['-5', '0', '1500.00', '1e3', '9007199254740992', 'NaN'].map((amount): [string[], RegExp] => [
      [...fund, ...inNaira, '--amount', amount],
      /'--amount <number>' argument '[^']*' is invalid\. Expected a whole number of minor units from 1 to 9007199254740991: 150000 is 1,500\.00 NGN/,
    ]),
    [[...fund, '--amount', '5', '--environment', 'live', '--currency', 'naira'], /three capital letters, such as NGN/],
    [[...fund, '--amount', '5', '--environment', 'prod', '--currency', 'NGN'], /Allowed choices are live, test/],
    [[...fund, '--amount', '5', ...inNaira, '--reference', 'a b'], /--reference must be 1 to 100 letters/],
    [
      ['fund', 'wallet-1', '--reason', 'x', '--amount', '5', ...inNaira],
      /the id of a wallet must be a UUID\. To see the ids, run "merchant-gateway wallets list"/,
    ],
    [['show', 'svc_live_abc'], /the id of a wallet must be a UUID/],
    [
      ['create', '--merchant', 'a b', ...inNaira, '--no-registry-check'],
      /the id of a merchant must consist of 1 to 64 letters/,
    ],
    [
      ['list', '--token', operatorsToken],
      /do not give a token as an argument, because other users of this machine can see arguments: use --token-file/,
    ],
  ] as const) {
    const { status, stderr } = await wallets(...args);
    t.equal(status, 2, args.join(' '));
    t.match(stderr, message);
  }
  t.equal(await balanceOf(services.database, id), 0);
  const wrong = await wallets(
    'fund',
    id,
    '--amount',
    '5',
    '--currency',
    'KES',
    '--environment',
    'live',
    '--reason',
    'x',
  );
  t.equal(wrong.status, 1);
  t.match(wrong.stderr, /The wallet is in NGN, not in KES/);
  const sandbox = await wallets(
    'fund',
    id,
    '--amount',
    '5',
    '--currency',
    'NGN',
    '--environment',
    'test',
    '--reason',
    'x',
  );
  t.match(sandbox.stderr, /The wallet is in the environment live, not in test/);
  const stranger = await wallets('fund', id, '--amount', '5', ...inNaira, '--reason', 'x', '--merchant', 'm_2');
  t.match(stranger.stderr, /The wallet belongs to the merchant m_1, not to m_2/);
  t.equal(await balanceOf(services.database, id), 0);
});

t.test('unavailable services and a foreign server are distinguished, each with a remedy', async (t) => {
  const away = await run(t, nowhere, 'list');
  t.equal(away.status, 1);
  t.equal(
    away.stderr,
    `Cannot reach the operators' API at ${nowhere}/: the connection was refused. Start the services (with services.operators.registryKeys or services.operators.tokenFile set), or give the right address with --services.\n`,
  );
  const { services, wallets } = await startBoth(t);
  t.match((await run(t, services.url, 'list')).stderr, /403|did not respond like the operators' API/);
  await writeFile(path.join(directory, 'wrong'), 'x'.repeat(40), { mode: 0o600 });
  const wrong = await wallets('list', '--token-file', path.join(directory, 'wrong'));
  t.match(wrong.stderr, /Invalid token/);
});

t.test('an interrupted fund prints the reference to repeat, and repeating moves the money once', async (t) => {
  const { services, wallets } = await startBoth(t);
  await wallets('create', '--merchant', 'm_1', ...inNaira, '--no-registry-check');
  const { id } = await services.database.selectFrom('wallets').select('id').executeTakeFirstOrThrow();
  // Executes the request, then closes the connection before the response, like a failing network.
  const cutOff = await startServer(t, (request, response) => {
    let body = '';
    request.on('data', (chunk: Buffer) => (body += chunk.toString()));
    request.on('end', () => {
      const { authorization = '', 'x-actor': actor = '' } = request.headers;
      const headers = { authorization, 'x-actor': String(actor), 'content-type': 'application/json' };
      void fetch(`${services.operatorsUrl ?? ''}${request.url ?? ''}`, { method: 'POST', headers, body }).then(() =>
        response.socket?.destroy(),
      );
    });
  });
  const order = ['fund', id, '--amount', '700', ...inNaira, '--reason', 'Deposit'];
  const lost = await run(t, cutOff, ...order);
  t.equal(lost.status, 1);
  t.equal(await balanceOf(services.database, id), 700, 'the money was moved');
  const [, reference = ''] =
    /^The reference is (fund-\w{26})\. If the command is interrupted, retry with --reference \1\n/.exec(lost.stderr) ??
    [];
  t.match(
    lost.stderr,
    `The money may have been moved nevertheless. Retry with --reference ${reference}: money that was already moved is not moved again.`,
  );
  const again = await wallets(...order, '--reference', reference);
  t.equal(again.status, 0);
  t.match(again.stdout, 'The money was already moved under this reference, and was not moved again.');
  t.equal(await balanceOf(services.database, id), 700);
});

t.test('the operators’ API uses TLS with its certificate, and is found by configuration only', async (t) => {
  const folder = t.testdir();
  const { cert, key } = await createSelfSigned(new Date());
  await writeFile(path.join(folder, 'cert.pem'), cert);
  await writeFile(path.join(folder, 'key.pem'), key, { mode: 0o600 });
  await (await openServicesDatabase({ url: `sqlite:${folder}/services.db` })).destroy();
  const config = path.join(folder, 'gateway.yaml');
  const write = (port: number): Promise<void> =>
    writeFile(
      config,
      `services:
  listen: { port: 0 }
  database: { url: "sqlite:${folder}/services.db" }
  operators:
    listen: { host: 127.0.0.1, port: ${port}, certFile: "${folder}/cert.pem", keyFile: "${folder}/key.pem" }
    tokenFile: "${tokenFile}"
`,
    );
  await write(0);
  const child = spawn(...productCommand(['services', '--create', '--config', config]), {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  killAtEnd(t, child);
  let log = '';
  const port = await new Promise<number>((resolve, reject) => {
    child.once('exit', () => {
      reject(new Error(`the services ended: ${log}`));
    });
    child.stderr.on('data', (chunk: Buffer) => {
      log += chunk.toString();
      const found = /"operatorsUrl":"https:\/\/127\.0\.0\.1:(\d+)"/.exec(log)?.[1];
      if (found !== undefined) resolve(Number(found));
    });
  });
  await write(port);
  const list = spawn(...productCommand(['wallets', 'list', '--config', config]), {
    env: { ...process.env, NODE_EXTRA_CA_CERTS: path.join(folder, 'cert.pem') },
  });
  let stdout = '';
  list.stdout.on('data', (chunk: Buffer) => (stdout += chunk.toString()));
  list.stderr.on('data', (chunk: Buffer) => (stdout += chunk.toString()));
  await once(list, 'close');
  t.equal(stdout, 'No wallets.\n');
});
