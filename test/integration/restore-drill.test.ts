import { execFile, spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import t, { type Test } from 'tap';
import { createSelfSigned } from '../../src/cli/dev/self-signed.js';
import { openServicesDatabase } from '../../src/services/services-database.js';
import { freePort, startRedis, withoutRedis } from '../adapters/redis-server.js';
import { until } from '../alerts/rig.js';
import { createPostgresDatabase, onServer, postgresAlone } from '../database/each-database.js';
import { printedBlocks } from '../printed-commands.js';
import { addWallet } from '../services/services-fixture.js';

// These tests run in parallel: they mostly wait, each for its own servers.
t.jobs = 3;

const document = 'docs/operations.md';
const blocks = printedBlocks(document);
const has = (...names: string[]): boolean => names.every((name) => spawnSync(name, ['--version']).error === undefined);
const tools = has('bash', 'curl', 'openssl', 'tar')
  ? withoutRedis
  : 'bash, curl, openssl or tar is missing: THE RESTORE DRILL IS NOT TESTED';
const client = has('psql', 'pg_dump', 'pg_restore')
  ? postgresAlone.skip
  : 'no PostgreSQL client: THE RESTORE DRILL IS NOT TESTED ON PostgreSQL';
const skip = { sqlite: tools, postgresql: tools === false ? client : tools };
t.setTimeout(400_000);

/** Returns the commands of the only block under a heading whose introduction matches. */
function printed(heading: string, introduction = /^/): string {
  const [block, another] = blocks.filter((one) => one.heading === heading && introduction.test(one.introduction));
  if (block === undefined || another !== undefined)
    throw new Error(`${document} has no one block "${heading}" ${introduction}`);
  return block.commands;
}

/** Simulates a new machine: a directory that contains only the product, and a Redis. */
async function emptyMachine(t: Test) {
  const cwd = await mkdtemp(path.join(tmpdir(), 'merchant-gateway-drill-'));
  t.teardown(() => rm(cwd, { recursive: true, force: true }));
  symlinkSync(path.resolve('dist'), path.join(cwd, 'dist'));
  const redis = await startRedis(t);
  const ports = {
    https: await freePort(),
    management: await freePort(),
    registry: await freePort(),
    services: await freePort(),
  };
  // The test runner's instrumentation would dominate the start time of each process.
  const env = { ...process.env, NODE_OPTIONS: '' };
  const values: Record<string, string> = {
    CONFIG: 'var/gateway.yaml',
    API: `https://localhost:${ports.https}/v1`,
    READY: `http://127.0.0.1:${ports.management}/readyz`,
    MERCHANT: '',
    CURRENCY: 'NGN',
  };
  /**
   * In one new shell, runs the document's first block with the values of this machine, and then `commands`. Returns
   * what the shell prints.
   */
  async function shell(commands: string): Promise<string> {
    const named = new Set<string>();
    const setting = printed('1. Say where things are').replaceAll(/^export (\w+)=.*$/gm, (_, name: string) => {
      named.add(name);
      return `export ${name}=${values[name] ?? ''}`;
    });
    t.same([...named], Object.keys(values), 'the first block sets exactly the known values');
    const script = `${setting}\n${commands}`;
    const { stdout } = await promisify(execFile)('bash', ['-euc', script], { cwd, env, timeout: 200_000 });
    return stdout;
  }
  const processes: ChildProcess[] = [];
  async function stop(signal: NodeJS.Signals = 'SIGTERM'): Promise<void> {
    for (const one of processes.splice(0).toReversed()) {
      if (one.exitCode !== null || one.signalCode !== null) continue;
      one.kill(signal);
      await once(one, 'exit');
    }
  }
  t.teardown(() => stop('SIGKILL'));
  /** Stops a part from running during an action, so that it responds to no request. */
  async function frozen(part: string, action: () => Promise<unknown>): Promise<void> {
    const found = processes.filter(({ spawnargs }) => spawnargs.join(' ').includes(`main.js ${part} `));
    t.equal(found.length, 1, `one process of the ${part}`);
    for (const one of found) one.kill('SIGSTOP');
    try {
      await action();
    } finally {
      for (const one of found) one.kill('SIGCONT');
    }
  }
  /** Starts all parts, or only the part that `only` names, with the commands in the document. */
  function start(only = ''): void {
    for (const line of printed('5. Restore', /^and the services no longer know/).split('\n')) {
      if (!line.includes(`main.js ${only}`)) continue;
      const child = spawn('sh', ['-c', `exec ${line}`], { cwd, env, stdio: ['ignore', 'ignore', 'pipe'] });
      child.stderr.on('data', () => undefined);
      processes.push(child);
    }
  }
  const file = (...names: string[]): string => path.join(cwd, ...names);
  return { cwd, file, frozen, ports, redis, shell, start, stop, values };
}

type Machine = Awaited<ReturnType<typeof emptyMachine>>;
type Urls = Readonly<Record<'registry' | 'services', string>>;

/**
 * Writes an operator's files to `var`, with various file modes. The backup and restore must preserve the mode of each
 * file.
 */
async function install({ file, ports, redis, shell }: Machine, urls: Urls): Promise<void> {
  await mkdir(file('var'), { mode: 0o700 });
  const { cert, key } = await createSelfSigned(new Date());
  const { privateKey } = generateKeyPairSync('ed25519');
  const signing = privateKey.export({ type: 'pkcs8', format: 'pem' });
  const secret = (): string => randomBytes(32).toString('hex');
  const name = (of: string): string => file('var', of);
  const config = `environment: live
listen:
  https: { host: 127.0.0.1, port: ${ports.https}, certFile: ${name('tls.cert.pem')}, keyFile: ${name('tls.key.pem')} }
  http: null
  management: { host: 127.0.0.1, port: ${ports.management} }
torExits: { enabled: false }
keyStore: { redis: { url: "${redis.url}", replicas: 0 } }
keys: { pepperFile: ${name('pepper')}, recordSecretFile: ${name('record-secret')} }
registry:
  listen: { port: ${ports.registry} }
  database: { url: "${urls.registry}" }
  tokenFile: ${name('admin-token')}
services: { listen: { port: ${ports.services} }, database: { url: "${urls.services}", statementTimeoutSeconds: 60 } }
upstreams:
${['transactions', 'payouts', 'customers'].map((one) => `  ${one}: { url: "http://127.0.0.1:${ports.services}" }\n`).join('')}
identity: { signingKeyFile: ${name('identity.key.pem')} }
accessLog: { destination: ${name('access.log')}, secretFile: ${name('access-log-secret')} }
`;
  const files: Record<string, [string | Buffer, number]> = {
    'gateway.yaml': [config, 0o640],
    'tls.cert.pem': [cert, 0o644],
    'tls.key.pem': [key, 0o600],
    'identity.key.pem': [signing, 0o400],
    pepper: [secret(), 0o400],
    'record-secret': [secret(), 0o600],
    'admin-token': [secret(), 0o600],
    'access-log-secret': [secret(), 0o600],
    'pg_service.conf': [(['registry', 'services'] as const).map((part) => serviceOf(part, urls[part])).join(''), 0o600],
  };
  for (const [of, [content, mode]] of Object.entries(files)) await writeFile(name(of), content, { mode });
  for (const part of ['registry', 'services'])
    await shell(`node dist/cli/main.js database migrate ${part} --create --config "$CONFIG"`);
}

/**
 * Returns the entry of a database in the service file of libpq; empty for SQLite. The file keeps credentials out of the
 * arguments of commands.
 */
function serviceOf(part: string, address: string): string {
  if (address.startsWith('sqlite:')) return '';
  const { hostname, port, username, password, pathname } = new URL(address);
  const lines = [
    `[${part}]`,
    `host=${hostname}`,
    `port=${port || '5432'}`,
    `user=${username}`,
    `dbname=${pathname.slice(1)}`,
  ];
  return [...lines, ...(password === '' ? [] : [`password=${decodeURIComponent(password)}`]), ''].join('\n');
}

/** Each file to be restored, with its mode and content. */
function contents(folder: string): Record<string, [number, string]> {
  const names = readdirSync(folder).filter((name) => !/\.(?:db|log)/.test(name));
  const of = (name: string): [number, string] => {
    const file = path.join(folder, name);
    return [statSync(file).mode & 0o777, readFileSync(file, 'utf8')];
  };
  return {
    '.': [statSync(folder).mode & 0o777, ''],
    ...Object.fromEntries(names.toSorted().map((name) => [name, of(name)])),
  };
}

/** Creates a merchant with money, as the drill requires. */
async function addMerchant({ shell, values }: Machine, urls: Urls): Promise<void> {
  const made = await shell(
    `curl --silent --fail --retry 60 --retry-delay 1 --retry-all-errors --output /dev/null "$READY"
node dist/cli/main.js merchants create --name Drill --status ACTIVE --go-live --json --config "$CONFIG"`,
  );
  values.MERCHANT = (JSON.parse(made) as { id: string }).id;
  const database = await openServicesDatabase({ url: urls.services });
  await addWallet(
    database,
    { merchantId: values.MERCHANT, environment: 'live' },
    { balance: 100_000, isDefault: true },
  );
  await database.destroy();
}

/** Requests a payout from a given wallet, and one whose client disconnects before the services respond. */
async function addOtherPayouts(t: Test, { file, frozen, shell }: Machine): Promise<void> {
  const made = await shell(`
WALLET=$(ask kept dev/wallets | node -p 'JSON.parse(fs.readFileSync(0)).data[0].id')
curl --silent --show-error --fail --cacert var/tls.cert.pem --header @drill/kept --header 'idempotency-key: from-a-wallet' \
  --json '{"walletId":"'"$WALLET"'","amount":100,"destinationBankCode":"058","destinationAccountNumber":"0123456789","destinationAccountName":"Amina"}' \
  "$API/dev/payouts"`);
  t.match(made, '"message":"Payout created"', 'a payout from a given wallet');
  const isLogged = (): boolean => readFileSync(file('var/access.log'), 'utf8').includes('"code":"client_closed"');
  await frozen('services', async () => {
    await shell('curl() { command curl --max-time 5 "$@"; }\npay for-a-client-that-left 2>/dev/null || true');
    await until('the log has the client that left', isLogged);
  });
}

/**
 * Runs the printed drill up to its last step.
 * @returns the output of the last step
 */
async function drill(t: Test, machine: Machine, urls: Urls, kind: 'SQLite' | 'PostgreSQL'): Promise<string> {
  const { file, redis, shell, start, stop } = machine;
  await install(machine, urls);
  await shell(printed('Backup and restore'));
  start();
  await addMerchant(machine, urls);
  t.match(await shell(printed('2. Make what will be looked for')), /"status":"successful"/);
  const before = contents(file('var'));
  const backedUp = Date.now();
  // Makes a payout between the backups of the two databases. The last line of the block makes the second backup.
  await shell(printed('3. Back up', new RegExp(`^${kind}`)).replace(/\n(?=.*$)/, '\npay between-the-databases\n'));
  const began = Date.parse(readFileSync(file('backup/began'), 'utf8').trim());
  t.ok(began < backedUp - 30_000, 'the search begins earlier than the backup, for the payouts in flight');
  await shell(printed('3. Back up', /^Secrets and configuration/));
  await shell(printed('4. Make what the backup lacks', /^$/));
  await addOtherPayouts(t, machine);
  await stop();
  await shell(printed('4. Make what the backup lacks', /^Stop all parts/));

  rmSync(file('var'), { recursive: true });
  if (kind === 'PostgreSQL') {
    for (const url of Object.values(urls))
      await onServer(`drop database ${new URL(url).pathname.slice(1)} with (force)`);
  }
  await redis.kill();
  await redis.restart();

  await shell(printed('5. Restore', /^The secrets/));
  t.same(contents(file('var')), before, 'secrets and configuration are restored with their modes');
  await shell(printed('5. Restore', new RegExp(`^${kind}`)));
  start();
  return shell(printed('6. Look'));
}

const drilled = (['SQLite', 'PostgreSQL'] as const).map((kind) => {
  const title = `the restore drill works as it is printed (${kind})`;
  return { kind, title, skip: kind === 'SQLite' ? skip.sqlite : skip.postgresql };
});

for (const { kind, title, skip } of drilled) {
  t.test(title, { skip }, async (t) => {
    const machine = await emptyMachine(t);
    const { file, shell } = machine;
    const urls =
      kind === 'SQLite'
        ? { registry: `sqlite:${file('var/registry.db')}`, services: `sqlite:${file('var/services.db')}` }
        : { registry: await createPostgresDatabase(t), services: await createPostgresDatabase(t) };
    const seen = await drill(t, machine, urls, kind);

    t.match(seen, 'The books are as before.', 'the key is accepted, and the balances are as before');
    t.match(seen, '"message":"API Key is inactive or revoked"', 'the response to a key revoked before the backup');
    t.match(seen, '"message":"Invalid API Key"', 'the response to a key created after the backup');
    t.match(
      seen,
      'changes may be lost: Redis and the gateways have no records to compare the database with',
      'output of `restores list`',
    );
    t.match(seen, '\nNo records.\n', 'output of `restores held`');
    const began = Date.parse(readFileSync(file('backup/began'), 'utf8').trim()) + 60_000;
    const requests = [...seen.matchAll(/^(\S+) +\d+ +(\w+) .* (POST +\/v1\/(?:dev\/)?payouts)/gm)];
    const missing = requests
      .filter(([, at = '']) => Date.parse(at) >= began)
      .map(([, , ...request]) => request.join(' '));
    t.same(
      missing.toSorted(),
      [
        ...['accepted POST /v1/dev/payouts', 'accepted POST /v1/payouts', 'accepted POST /v1/payouts'],
        'client_closed POST /v1/payouts',
      ],
      'the payouts that are missing from the books',
    );

    for (const name of readdirSync(file('backup'))) t.equal(statSync(file('backup', name)).mode & 0o077, 0, name);
    t.equal(statSync(file('backup-of-secrets/secrets.cms')).mode & 0o077, 0);
    const first = JSON.parse(await shell('pay before-the-backup')) as { data: { id: string } };
    t.match(readFileSync(file('drill/books'), 'utf8'), first.data.id, 'a repeated payout is not made again');
    t.match(await shell('books | diff drill/books - && echo same'), 'same');
    t.match(
      await shell('node dist/cli/main.js audit verify --config "$CONFIG" drill/access.log'),
      /^Intact: /,
      'the restored access log secret verifies the earlier lines',
    );
    await changedArchive(t, machine);
    await incompleteArchive(t, machine);
  });
}

/** Checks that the step that archives the secrets fails if the archive is incomplete. */
async function incompleteArchive(t: Test, { cwd, file, shell }: Machine): Promise<void> {
  await mkdir(file('bin'));
  await writeFile(file('bin/tar'), '#!/bin/sh\necho incomplete\nexit 2\n', { mode: 0o755 });
  const block = printed('3. Back up', /^Secrets and configuration/);
  await t.rejects(shell(`PATH="${cwd}/bin:$PATH"\n${block}`), 'an incomplete archive is an error');
}

/** Checks that a modified archive is not unpacked. */
async function changedArchive(t: Test, { file, shell }: Machine): Promise<void> {
  const sealed = readFileSync(file('backup-of-secrets/secrets.cms'));
  const place = sealed.length - 100;
  sealed[place] = (sealed[place] ?? 0) ^ 1;
  writeFileSync(file('backup-of-secrets/secrets.cms'), sealed);
  rmSync(file('var/pepper'));
  await shell(`${printed('5. Restore', /^The secrets/)} 2>/dev/null`).catch(() => undefined);
  t.notOk(readdirSync(file('var')).includes('pepper'));
}

t.test('the registry alone is restored in place as printed (SQLite)', { skip: skip.sqlite }, async (t) => {
  const machine = await emptyMachine(t);
  const { file, ports, shell, start, stop } = machine;
  const urls = { registry: `sqlite:${file('var/registry.db')}`, services: `sqlite:${file('var/services.db')}` };
  await install(machine, urls);
  start();
  await addMerchant(machine, urls);
  await shell(`mkdir drill\nnew_key kept\n${printed('3. Back up', /^SQLite/)}`);
  const revoke = `node dist/cli/main.js keys revoke "$(node -p 'JSON.parse(fs.readFileSync("drill/kept.json")).keyId')" --config "$CONFIG"`;
  await shell(revoke);
  await stop();
  await shell(printed('The registry alone, in place', /^SQLite/));
  start('registry');
  // Reads the metrics instead of running `restores held`, because each run of that command would start a process.
  const holdsBack = async (): Promise<boolean> => {
    try {
      const response = await fetch(`http://127.0.0.1:${ports.registry}/metrics`);
      return /^registry_held_back_records [1-9]/m.test(await response.text());
    } catch {
      return false; // it does not listen yet
    }
  };
  await until('the registry holds a record back', holdsBack, 200, 250);
  t.match(
    await shell('node dist/cli/main.js restores held --config "$CONFIG"'),
    /key_.* store /,
    'a revocation after the backup stays in force, because Redis has its record',
  );
});
