import { randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import t, { type Test } from 'tap';
import { writeSession } from '../../src/cli/admin/session/session-file.js';
import { run as runCommand } from '../../src/cli/run.js';
import { noRules } from '../../src/registry/approvals/guard.js';
import { applyConfiguredRules } from '../../src/registry/approvals/rules.js';
import { startServices } from '../../src/services/start-services.js';
import { ManualTime } from '../registry/manual-time.js';
import { registryFixture } from '../registry/registry-fixture.js';
import { administratorsWith, newServicesTokenKey, operatorsToken } from '../services/operators-fixture.js';
import { startServer } from '../start-server.js';

const directory = await mkdtemp(path.join(tmpdir(), 'merchant-gateway-administrators-'));
t.teardown(() => rm(directory, { recursive: true, force: true }));
delete process.env.MERCHANT_GATEWAY_REGISTRY;
delete process.env.MERCHANT_GATEWAY_TOKEN;
delete process.env.MERCHANT_GATEWAY_SERVICES;
delete process.env.MERCHANT_GATEWAY_SERVICES_TOKEN;
process.env.XDG_CONFIG_HOME = directory;
process.env.HOME = directory;

const secrets: string[] = [operatorsToken];
let files = 0;
const time = new ManualTime();
const key = await newServicesTokenKey();

/**
 * Starts a registry that signs tokens for the services with `key` (null: it signs none), and services that trust the
 * key `knows`. By default, both are the same key.
 */
async function startBoth(t: Test, further: { key?: typeof key | null; knows?: typeof key } = {}) {
  const { key: servicesTokenKey = key, knows = key } = further;
  const registry = await registryFixture(t, 'sqlite::memory:', { servicesTokenKey });
  const registryUrl = await registry.app.listen({ host: '127.0.0.1', port: 0 });
  const administrators = await administratorsWith([knows], registry.time);
  const operators = { host: '127.0.0.1', port: 0, token: operatorsToken, administrators, tls: null };
  const services = await startServices({
    ...{ host: '127.0.0.1', port: 0, databaseUrl: 'sqlite::memory:', operators },
    ...{ assertions: null, clock: time, timers: time, bank: { delayMilliseconds: 1000, failingAccounts: [] } },
  });
  t.teardown(() => services.close());
  const tokenFile = async (role: string, name = role.slice(0, 3)) => {
    const body = { name, roles: [role] };
    const { id } = (await registry.call<{ id: string }>('POST', '/administrators', { body })).body.data;
    const created = await registry.call<{ token: string }>('POST', '/tokens', {
      body: { name: 'x', administratorId: id },
    });
    const file = path.join(directory, `${role}-${(files += 1)}`);
    await writeFile(file, created.body.data.token, { mode: 0o600 });
    secrets.push(created.body.data.token);
    return { file, token: created.body.data.token };
  };
  const { id: merchantId } = await registry.createMerchant();
  const wallets = (...args: string[]) => run(t, ...args, '--services', services.operatorsUrl ?? '');
  return { registry, registryUrl, services, merchantId, tokenFile, wallets };
}

async function run(t: Test, ...args: string[]) {
  let [stdout, stderr] = ['', ''];
  const io = { out: (text: string) => (stdout += text), err: (text: string) => (stderr += text) };
  const status = await runCommand(['wallets', ...args], io);
  for (const secret of [...secrets, 'eyJ']) t.notOk((stdout + stderr).includes(secret), 'the output contains no token');
  t.notMatch(stderr, /\n {4}at /, 'no stack trace');
  return { status, stdout, stderr };
}

const inNaira = ['--currency', 'NGN', '--environment', 'live'];
const walletIn = (text: string): string => /[0-9a-f-]{36}/.exec(text)?.[0] ?? '';

t.test(
  'an administrator creates and funds a wallet with the token of the registry, under their own name',
  async (t) => {
    const { registryUrl, merchantId, tokenFile, wallets } = await startBoth(t);
    const { file } = await tokenFile('treasurer');
    const access = ['--registry', registryUrl, '--registry-token-file', file];
    const created = await wallets('create', '--merchant', merchantId, ...inNaira, ...access);
    t.same([created.status, created.stderr], [0, '']);
    t.match(created.stdout, /\ncreated by +tre\n/);
    const order = [
      walletIn(created.stdout),
      '--amount',
      '700',
      ...inNaira,
      '--reason',
      'Deposit',
      '--actor',
      'somebody',
    ];
    const funded = await wallets('fund', ...order, '--reference', 'one', ...access);
    t.same([funded.status, funded.stderr], [0, '']);
    t.match(funded.stdout, /\nby +tre\n/, 'not under the claimed name');
    t.match((await wallets('list', '--reason', 'month end', ...access)).stdout, ' 700 ');
    const shared = await wallets('fund', ...order, '--reference', 'two', '--token-file', await sharedFile());
    t.match(shared.stdout, /\nby +somebody\n/, 'the shared token still works');
  },
);

t.test('a funding above the limit moves after another treasurer has approved it', async (t) => {
  const { registry, registryUrl, merchantId, tokenFile, wallets } = await startBoth(t);
  const context = { database: registry.database, clock: registry.time, random: randomBytes };
  await applyConfiguredRules(context, { ...noRules, fundingAbove: { NGN: 700 } }, undefined);
  const [tess, tom] = [await tokenFile('treasurer', 'tess'), await tokenFile('treasurer', 'tom')];
  const access = ['--registry', registryUrl, '--registry-token-file', tess.file];
  const created = await wallets('create', '--merchant', merchantId, ...inNaira, ...access);
  const wallet = walletIn(created.stdout);
  const fund = (amount: number, ...more: string[]) =>
    wallets('fund', wallet, '--amount', String(amount), ...inNaira, '--reason', 'Deposit', ...more, ...access);
  t.equal((await fund(700, '--reference', 'small')).status, 0);
  const waits = await fund(701);
  t.match(waits, {
    status: 1,
    stdout: '',
    stderr: /\nNo money was moved yet\. Another administrator must approve the funding by /,
  });
  const [, approval = ''] = /approvals approve (apr_\w+)/.exec(waits.stderr) ?? [];
  const [, again = ''] = /run this command again with (--reference .*)\.\n$/.exec(waits.stderr) ?? [];
  t.match(await fund(701, ...again.split(' ')), {
    status: 1,
    stderr: /The request is not approved: its status is WAITING/,
  });
  const out: string[] = [];
  const io = { out: (text: string) => void out.push(text), err: (text: string) => void out.push(text) };
  const decide = ['approvals', 'approve', approval, '--registry', registryUrl, '--token-file', tom.file];
  t.equal(await runCommand(decide, io), 0, out.join(''));
  t.match(
    out.join(''),
    /would change +walletId .*\n.*environment live\n.*currency NGN\n.*amount 701\n.*reference fund-/,
  );
  t.notMatch(out.join(''), /key store|In force/, 'gateways do not know fundings');
  const requests = async () => (await registry.call<unknown[]>('GET', '/approvals')).body.data.length;
  const before = await requests();
  t.match(await fund(701, '--approval', approval), {
    ...{ status: 2, stdout: '' },
    stderr: /--approval requires --reference, because an approval is for one reference/,
  });
  t.equal(await requests(), before, 'no second approval is requested');
  t.match(
    await fund(702, ...again.split(' ')),
    { status: 1, stderr: /No money was moved yet/ },
    'another amount is another request',
  );
  t.match(await fund(701, ...again.split(' ')), { status: 0, stdout: /The balance of the wallet is 1401 NGN/ });
  t.match(await fund(701, ...again.split(' ')), { status: 0, stdout: /not moved again/ });
  const filed = await requests();
  t.match(await fund(701, ...again.split(' ').slice(0, 2)), { status: 0, stdout: /not moved again/ });
  t.equal(await requests(), filed, 'a repeat needs no approval, so none is requested');
  const broken = await startServer(t, (request) => request.socket.destroy());
  const order = ['fund', wallet, '--amount', '701', ...inNaira, '--reason', 'Deposit', ...again.split(' '), ...access];
  const lost = await run(t, ...order, '--services', broken);
  t.equal(lost.status, 1);
  t.match(lost.stderr, `Retry with ${again}: money that was already moved is not moved again.`);
});

async function sharedFile(): Promise<string> {
  const file = path.join(directory, 'operators-token');
  await writeFile(file, operatorsToken, { mode: 0o600 });
  return file;
}

t.test('a sign-in suffices, and the environment variables of both APIs', async (t) => {
  const { registryUrl, merchantId, tokenFile, wallets } = await startBoth(t);
  const { token } = await tokenFile('treasurer');
  const session = path.join(directory, 'session');
  const registry = new URL(registryUrl).href;
  await writeSession(session, { registry, token, expiresAt: '2999-01-01T00:00:00.000Z', handle: null });
  const access = ['--registry', registryUrl, '--registry-token-file', session];
  t.equal((await wallets('create', '--merchant', merchantId, ...inNaira, ...access)).status, 0);
  process.env.MERCHANT_GATEWAY_REGISTRY = registryUrl;
  process.env.MERCHANT_GATEWAY_TOKEN = token;
  t.match((await wallets('list')).stdout, merchantId, 'without any shared token, the registry is asked');
  delete process.env.MERCHANT_GATEWAY_TOKEN;
  process.env.MERCHANT_GATEWAY_SERVICES_TOKEN = operatorsToken;
  t.match((await wallets('list')).stdout, merchantId, 'the variable of the shared token');
  delete process.env.MERCHANT_GATEWAY_SERVICES_TOKEN;
  delete process.env.MERCHANT_GATEWAY_REGISTRY;
});

t.test('each refusal names the next step', async (t) => {
  const { registryUrl, merchantId, tokenFile, wallets } = await startBoth(t);
  const support = await tokenFile('support');
  const auditor = await tokenFile('auditor');
  const at = ['--registry', registryUrl, '--registry-token-file'];
  const refused = await wallets('list', ...at, support.file);
  t.equal(refused.status, 1);
  t.match(
    refused.stderr,
    /Your roles \(support\) do not allow this: the permission wallets:read is needed\. Run "merchant-gateway whoami" and "merchant-gateway roles" to see/,
  );
  const reads = await wallets('list', ...at, auditor.file);
  t.same([reads.status, reads.stdout], [0, 'No wallets.\n']);
  const writes = await wallets('create', '--merchant', merchantId, ...inNaira, ...at, auditor.file);
  t.match(
    writes.stderr,
    /aud lacks the permission wallets:write, which this request needs\. Run "merchant-gateway whoami" and "merchant-gateway roles" to see/,
  );
  const noToken = await wallets('list');
  t.equal(noToken.status, 2);
  t.match(
    noToken.stderr,
    /a token is required\. .*--registry-token-file.*give the shared operators' token with --token-file/,
  );

  const off = await startBoth(t, { key: null });
  const owner = await off.tokenFile('owner');
  const noSigningKey = await off.wallets('list', '--registry', off.registryUrl, '--registry-token-file', owner.file);
  t.equal(noSigningKey.status, 1);
  t.match(
    noSigningKey.stderr,
    /Otherwise set registry\.servicesToken in the configuration of the registry, or give the shared operators' token with --token-file/,
  );

  const stranger = await startBoth(t, { knows: await newServicesTokenKey() });
  const treasurer = await stranger.tokenFile('treasurer');
  const unknown = await stranger.wallets(
    'list',
    '--registry',
    stranger.registryUrl,
    '--registry-token-file',
    treasurer.file,
  );
  t.equal(unknown.status, 1);
  t.match(
    unknown.stderr,
    /Invalid token\. Check that services\.operators\.registryKeys names the public key that belongs to the private key in registry\.servicesToken/,
  );
});
