import { spawn, spawnSync } from 'node:child_process';
import { generateKeyPairSync } from 'node:crypto';
import { once } from 'node:events';
import { chmodSync, readFileSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import type { Test } from 'tap';
import { parse } from 'yaml';
import { run } from '../../../src/cli/run.js';
import { openServicesDatabase } from '../../../src/services/services-database.js';
import { freePort, startRedis, withoutRedis } from '../../adapters/redis-server.js';
import { createPostgresDatabase, postgresAlone } from '../../database/each-database.js';
import { makeCertificate } from '../../edge/certificates.js';
import { liveKey, recordsOf } from '../../edge/harness.js';
import { productCommand } from '../../product-command.js';
import { registryFixture, token } from '../../registry/registry-fixture.js';
import { wrongCommandLines } from './command-lines.js';
import type { WrongStart } from './starts.js';
import { wrongFiles } from './wrong-files.js';
import { wrongServers } from './wrong-servers.js';
import type { Servers } from './wrong-servers.js';

/** The time limit of a command. It grows on a busy machine, where a process starts more slowly. */
const longestMilliseconds = Math.max(5_000, 8 * timeOfHelp());
const day = 86_400_000;
// A failed start does not remove its listeners for SIGHUP, SIGUSR1 and SIGUSR2, because its process ends. Here they
// accumulate in one process.
process.setMaxListeners(0);
const directory = t.testdir({
  'empty.yaml': '',
  'records.json': JSON.stringify(recordsOf(liveKey)),
  token: `${token}\n`,
  'other-token': 'another-token-of-administrators-0123456789',
  password: 'right',
  open: 'a-secret-that-everybody-can-read-0123456789',
  short: 'a-short-secret-17',
  empty: '',
  marked: '\uFEFFa-pepper-with-a-byte-order-mark',
  lines: 'a-pepper-with-blank-lines\n\n',
});
const at = (name: string): string => path.join(directory, name);

/** Returns how many milliseconds `--help` takes, which loads all commands. */
function timeOfHelp(): number {
  const begun = performance.now();
  spawnSync(...productCommand(['--help']));
  return performance.now() - begun;
}

interface Ended {
  readonly milliseconds: number;
}

/** How many more commands may be repeated. A busy machine stalls a few times, but hardly more often than this. */
let repeats = 4;

/** Runs something, and repeats it if it took longer than the limit. */
async function inTime<Result extends Ended>(act: (attempt: number) => Promise<Result>): Promise<Result> {
  for (let attempt = 0; ; attempt += 1) {
    const ended = await act(attempt);
    if (ended.milliseconds < longestMilliseconds || repeats === 0) return ended;
    repeats -= 1;
  }
}

interface EndedCommand extends Ended {
  readonly status: number;
  readonly err: string;
}

/** Runs a command in this process, once. */
async function runOnce(args: readonly string[]): Promise<EndedCommand> {
  let err = '';
  const begun = performance.now();
  const status = await run(args, { out: () => undefined, err: (text) => (err += text), isTerminal: false });
  return { status, err, milliseconds: performance.now() - begun };
}

/** Runs a command in this process, and repeats it if it took longer than the limit. */
function runCommand(...args: readonly string[]): Promise<EndedCommand> {
  return inTime(() => runOnce(args));
}

function checkEnd(t: Test, { status, err, milliseconds }: EndedCommand, expected: number): void {
  t.equal(status, expected, err);
  t.ok(milliseconds < longestMilliseconds, `took ${Math.round(milliseconds)} ms`);
  t.notMatch(err, /^ +at /m, 'no stack trace');
}

interface Misconfiguration {
  readonly what: string;
  readonly yaml: string;
  readonly message: string;
}

const misconfigurations = parse(
  readFileSync('test/cli/operator-mistakes/configurations.yaml', 'utf8'),
) as Misconfiguration[];

t.test('a configuration error is reported with line, option and expected value', async (t) => {
  const file = at('gateway.yaml');
  for (const { what, yaml, message: expected } of misconfigurations) {
    writeFileSync(file, `${yaml}\n`);
    const ended = await runCommand('config', 'check', '--config', file);
    checkEnd(t, ended, 2);
    t.equal(ended.err, `${file} is not valid (1 problem):\n  ${expected}\n`, what);
  }
});

t.test('a command-line error is reported with the option and the next step', async (t) => {
  chmodSync(at('open'), 0o644);
  writeFileSync(at('binary'), Buffer.from([0xff, 0xfe, 0x00]));
  const fixture = await registryFixture(t, 'sqlite::memory:');
  const url = await fixture.app.listen({ host: '127.0.0.1', port: 0 });
  const closed = `http://127.0.0.1:${await freePort()}`;
  const places = { $registry: url, $secure: url.replace('http:', 'https:'), $closed: closed, $: directory };
  for (const [what, line, status, expected] of wrongCommandLines) {
    const args = line
      .split(' ')
      .map((arg) => arg.replace(/\$(?:registry|secure|closed)?/, (name) => places[name as '$']));
    const ended = await runCommand(...args);
    checkEnd(t, ended, status);
    t.match(ended.err, expected, what);
  }
});

interface EndedStart extends Ended {
  /** The exit status; null after a signal; `continues` if the process logged the messages and still ran. */
  readonly status: number | 'continues' | null;
  readonly output: string;
}

/** Writes the configuration of a part with a mistake; returns the command line that starts the part. */
function configure(
  { part, options, args = [] }: WrongStart,
  number: number,
  level: 'info' | 'silent',
): readonly string[] {
  const base = {
    log: { level },
    listen: { https: { host: '127.0.0.1', port: 0, certFile: 'cert', keyFile: 'key' }, http: null, management: null },
    torExits: { enabled: false },
    keyStore: { kind: 'memory', memory: { recordsFile: 'records.json' }, redis: { url: 'redis://127.0.0.1:1' } },
    accessLog: { destination: `access-${number}.log` },
    registry: { listen: { port: 0 }, database: { url: `sqlite:registry-${number}.db` }, tokenFile: 'token' },
    services: { listen: { port: 0 }, database: { url: `sqlite:services-${number}.db` } },
    upstreams: { a: { url: 'http://127.0.0.1:1' } },
    routes: [{ path: '/transactions', upstream: 'a', resource: 'transactions' }],
  };
  const file = at(`start-${number}.yaml`);
  writeFileSync(file, JSON.stringify(merged(base, options)));
  // Unless the mistake is in the database, create a new one.
  const create = part !== 'gateway' && !JSON.stringify(options).includes('database') ? ['--create'] : [];
  return [part, '--config', file, ...create, ...args];
}

/** Starts a part with a mistake as a process; returns once it has ended or has logged the expected text. */
async function startProcess(row: WrongStart, number: number): Promise<EndedStart> {
  const { messages, continues } = row;
  const command = productCommand(configure(row, number, 'info'));
  const begun = performance.now();
  const child = spawn(...command, { stdio: ['ignore', 'ignore', 'pipe'] });
  let output = '';
  const hasAllMessages = new Promise<void>((resolve) => {
    child.stderr.on('data', (chunk: Buffer) => {
      output += chunk.toString();
      if (continues === true && messages.every((one) => one.test(output))) resolve();
    });
  });
  const ended = once(child, 'close') as Promise<[number | null]>;
  const giveUp = setTimeout(() => child.kill('SIGKILL'), 3 * longestMilliseconds);
  const outcome = await Promise.race([ended, hasAllMessages.then(() => 'continues' as const)]);
  const milliseconds = performance.now() - begun;
  clearTimeout(giveUp);
  child.kill('SIGKILL');
  await ended;
  return { output, milliseconds, status: outcome === 'continues' ? outcome : outcome[0] };
}

/** Starts a part with a mistake in this process; returns once it has failed. */
async function startHere(row: WrongStart, number: number): Promise<EndedStart> {
  const { status, err, milliseconds } = await runOnce(configure(row, number, 'silent'));
  return { output: err, milliseconds, status };
}

/** The number of timers, sockets and other resources of this process, without those that `unref()` excludes. */
function openResources(): number {
  return process.getActiveResourcesInfo().length;
}

function merged(lower: unknown, upper: unknown): unknown {
  const isGroup = (value: unknown): value is Record<string, unknown> =>
    typeof value === 'object' && value !== null && !Array.isArray(value);
  if (!isGroup(lower) || !isGroup(upper)) return upper;
  const names = new Set([...Object.keys(lower), ...Object.keys(upper)]);
  return Object.fromEntries(
    [...names].map((name) => [name, name in upper ? merged(lower[name], upper[name]) : lower[name]]),
  );
}

/**
 * Starts parts with mistakes. A process needs a second of CPU time, so only the parts that continue and those with
 * `ownProcess` are started as processes, two at a time. The other parts are then started one by one in this process.
 */
async function startAll(t: Test, rows: readonly WrongStart[], first: number): Promise<void> {
  const numbered = rows.map((row, index) => [row, first + index] as const);
  const needsProcess = ({ continues, ownProcess }: WrongStart): boolean => continues === true || ownProcess === true;
  const left = numbered.filter(([row]) => needsProcess(row));
  const work = async (): Promise<void> => {
    for (let next = left.shift(); next !== undefined; next = left.shift()) {
      const [row, number] = next;
      checkStart(t, row, await inTime((attempt) => startProcess(row, number + 10_000 * attempt)));
    }
  };
  await Promise.all([work(), work()]);
  const before = openResources();
  for (const [row, number] of numbered.filter(([row]) => !needsProcess(row))) {
    checkStart(t, row, await inTime((attempt) => startHere(row, number + 10_000 * attempt)));
    // If the part ran as a process, an open resource would keep that process alive.
    const end = performance.now() + longestMilliseconds;
    while (openResources() > before && performance.now() < end) await wait(1);
    t.ok(openResources() <= before, `${row.what}: everything is closed`);
  }
}

function checkStart(
  t: Test,
  { what, messages, continues }: WrongStart,
  { status, output, milliseconds }: EndedStart,
): void {
  t.ok(milliseconds < longestMilliseconds, `${what}: took ${Math.round(milliseconds)} ms`);
  if (continues === true) t.equal(status, 'continues', `${what}: ${output}`);
  else t.ok(status === 1 || status === 2, `${what}: ${output}`);
  for (const one of messages) t.match(output, one, what);
  t.notMatch(output, /^ +at /m, `${what}: no stack trace`);
}

t.test('a starting gateway names the file that it cannot use', { timeout: 240_000 }, async (t) => {
  const write = (name: string, { cert, key }: { cert: string; key: string }): void => {
    writeFileSync(at(`${name}cert`), cert);
    writeFileSync(at(`${name}key`), key);
  };
  const now = Date.now();
  write('', await makeCertificate());
  write('other-', await makeCertificate());
  write('expired-', await makeCertificate({ notBefore: now - 90 * day, notAfter: now - day }));
  write('early-', await makeCertificate({ notBefore: now + day }));
  write('soon-', await makeCertificate({ notBefore: now - 80 * day, notAfter: now + 10 * day }));
  writeFileSync(at('open-key'), readFileSync(at('key')));
  chmodSync(at('open-key'), 0o644);
  chmodSync(at('open'), 0o644);
  const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey;
  writeFileSync(at('rsa-key'), rsa.export({ type: 'pkcs8', format: 'pem' }));
  await startAll(t, wrongFiles, 0);
});

const skip = withoutRedis || postgresAlone.skip;
t.test('a starting part names the server that it cannot use', { skip, timeout: 240_000 }, async (t) => {
  await startAll(t, wrongServers(await startServers(t)), 1_000);
});

t.test('at least 150 mistakes are covered', (t) => {
  const servers = new Proxy({} as Servers, { get: () => 'redis://127.0.0.1:1/d' });
  const all = [misconfigurations, wrongCommandLines, wrongFiles, wrongServers(servers)];
  t.ok(all.flat().length >= 150, `${all.flat().length}`);
  t.end();
});

async function startServers(t: Test): Promise<Servers> {
  const plain = await startRedis(t);
  const monitor = `sentinel monitor mymaster 127.0.0.1 ${plain.port} 1`;
  const [locked, secure, node, replica, evicting, sentinel, lockedSentinel] = await Promise.all([
    startRedis(t, ['requirepass wrong-for-all', 'user few on >right ~* &* +@all -eval']),
    startRedis(t, [], [], await makeCertificate()),
    startRedis(t, ['cluster-enabled yes']),
    startRedis(t, [`replicaof 127.0.0.1 ${plain.port}`]),
    startRedis(t, ['maxmemory 100mb', 'maxmemory-policy allkeys-lru']),
    startRedis(t, [monitor], ['--sentinel']),
    startRedis(t, [monitor, 'requirepass of-sentinels'], ['--sentinel']),
  ]);
  const taken = net.createServer();
  await once(taken.listen(0, '127.0.0.1'), 'listening');
  t.teardown(() => taken.close());
  const [emptyPostgres, postgresOfServices] = [await createPostgresDatabase(t), await createPostgresDatabase(t)];
  await (await openServicesDatabase({ url: postgresOfServices })).destroy();
  return {
    ...{ plain: plain.url, locked: locked.url, node: node.url, replica: replica.url, evicting: evicting.url },
    secure: `rediss://localhost:${secure.port}`,
    sentinel: `127.0.0.1:${sentinel.port}`,
    lockedSentinel: `127.0.0.1:${lockedSentinel.port}`,
    takenPort: (taken.address() as AddressInfo).port,
    ...{ emptyPostgres, postgresOfServices },
  };
}
