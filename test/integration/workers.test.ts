import { spawn } from 'node:child_process';
import cluster from 'node:cluster';
import { once } from 'node:events';
import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import type { ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import t from 'tap';
import { readLogLines } from '../../src/audit/log-lines.js';
import { Verifier } from '../../src/audit/verifier.js';
import { createSelfSigned } from '../../src/cli/dev/self-signed.js';
import { run } from '../../src/cli/run.js';
import { WorkerProcess } from '../../src/cli/workers/worker-process.js';
import { WorkerPool } from '../../src/cli/workers/worker-processes.js';
import { createLogger } from '../../src/telemetry/logger.js';
import { ask, liveKey, recordsOf, startUpstream } from '../edge/harness.js';
import { testSecret, until } from '../telemetry/open-log.js';
import { productCommand } from '../product-command.js';

const pair = await createSelfSigned(new Date());
const directory = t.testdir({
  'cert.txt': pair.cert,
  'key.txt': pair.key,
  secret: 'a secret of the tests alone\n',
  'records.json': JSON.stringify(recordsOf(liveKey)),
});
const file = (name: string): string => path.join(directory, name);
const logs = [file('access.1.log'), file('access.2.log')] as const;
const headers = [['x-api-key', liveKey]] as const;

let fetches = 0;
let releaseFetches = (): void => undefined;
const fetchesReleased = new Promise<void>((resolve) => (releaseFetches = resolve));
const exits = http.createServer((_request, response) => {
  fetches += 1;
  void fetchesReleased.then(() => response.end('198.51.100.9\n'));
});
await new Promise<void>((resolve) => exits.listen(0, '127.0.0.1', resolve));
t.teardown(() => exits.close());

const upstream = await startUpstream(t);
const held: ServerResponse[] = [];
const respond = upstream.respond;
upstream.respond = (request, response, body) => {
  if (request.url?.endsWith('/held') === true) held.push(response);
  else respond(request, response, body);
};

function configure(destination: string): string[] {
  writeFileSync(
    file('config.yaml'),
    JSON.stringify({
      listen: {
        https: {
          host: '127.0.0.1',
          port: 0,
          certFile: file('cert.txt'),
          keyFile: file('key.txt'),
          reloadSeconds: 86400,
        },
        http: null,
        management: { host: '127.0.0.1', port: 0 },
      },
      torExits: {
        sources: [`http://127.0.0.1:${(exits.address() as AddressInfo).port}/list`],
        allowReserved: true,
        snapshotFile: file('tor-exits.json'),
      },
      keyStore: { kind: 'memory', memory: { recordsFile: file('records.json') } },
      upstreams: { all: { url: upstream.url } },
      routes: [{ path: '/transactions', upstream: 'all', resource: 'transactions' }],
      accessLog: { destination, secretFile: file('secret') },
      limits: { drainTimeoutSeconds: 600, eventLoopDelayMilliseconds: 0 },
    }),
  );
  return ['gateway', '--config', file('config.yaml')];
}

/** The timeout of waits for the start of processes: so long that only a start that never ends fails the test. */
const startSeconds = 90;

/** Two workers and their primary process. */
async function startWorkers() {
  const child = spawn(...productCommand([...configure(file('access.log')), '--workers', '2']), {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let output = '';
  child.stderr.on('data', (chunk: Buffer) => (output += chunk.toString()));
  const exited = once(child, 'exit') as Promise<[number | null, string | null]>;
  const pids = (worker: number): number[] =>
    [...output.matchAll(new RegExp(`"worker":${worker},"pid":(\\d+)`, 'g'))].map(([, pid]) => Number(pid));
  t.teardown(() => {
    child.kill('SIGKILL');
    for (const pid of [...pids(1), ...pids(2)]) if (isRunning(pid)) process.kill(pid, 'SIGKILL');
  });
  await until(() => output.includes('accepts requests') || child.exitCode !== null, startSeconds);
  const port = (name: string): number => Number(new RegExp(`"${name}":\\{[^}]*"port":(\\d+)`).exec(output)?.[1]);
  const management = `http://127.0.0.1:${port('management')}`;
  const gateway = { https: port('https'), ca: pair.cert };
  const isReady = async (): Promise<boolean> => (await fetch(`${management}/readyz`)).status === 200;
  return { child, exited, management, gateway, pids, isReady, output: () => output };
}

function isRunning(pid: number): boolean {
  try {
    // A zombie process has exited; its parent has not yet collected the status.
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}

async function untilTrue(condition: () => Promise<boolean>, seconds?: number): Promise<void> {
  let met = false;
  let asking: Promise<unknown> | null = null;
  await until(() => {
    asking ??= condition().then((holds) => {
      met = holds;
      asking = null;
    });
    return met;
  }, seconds);
}

const has = (log: string, text: string): boolean => existsSync(log) && readFileSync(log, 'utf8').includes(text);

async function findingsOf(files: readonly string[]): Promise<readonly unknown[]> {
  const verifier = new Verifier({ secrets: [testSecret], running: false, partial: false });
  for await (const lines of readLogLines(files)) for (const line of lines) verifier.take(line);
  return verifier.end().findings;
}

t.test('two workers act as one gateway: one port, one fetcher, one management API, and a log each', async (t) => {
  const first = await startWorkers();
  await until(() => fetches > 0);
  releaseFetches(); // after both workers have started, so that a second fetcher would be noticed
  await untilTrue(first.isReady);
  t.equal(fetches, 1, 'one worker fetches the Tor exit list, and the other adopts it');

  let asked = 0;
  while (!logs.every((log) => has(log, '"code":"accepted"'))) {
    t.equal((await ask(first.gateway, { path: '/v1/transactions', headers })).status, 200);
    asked += 1;
  }
  const counted = `route="/transactions",environment="live"} ${asked}\n`;
  await untilTrue(async () => (await (await fetch(`${first.management}/metrics`)).text()).includes(counted));
  const metrics = await (await fetch(`${first.management}/metrics`)).text();
  t.match(metrics, `gateway_request_duration_seconds_count{route="/transactions"} ${asked}\n`);
  t.match(
    metrics,
    /\ngateway_ready 1\n[^]*gateway_tor_list_entries 1\n/,
    'gauges that all workers share are not summed',
  );

  const [killed = 0] = first.pids(1);
  process.kill(killed, 'SIGKILL');
  await until(() => first.output().includes('worker process ended unexpectedly; starting a replacement'));
  t.equal((await ask(first.gateway, { path: '/v1/transactions', headers })).status, 200);
  await until(() => first.pids(1).length === 2, startSeconds);
  await untilTrue(first.isReady, startSeconds);
  const after = await (await fetch(`${first.management}/metrics`)).text();
  const count = /gateway_request_duration_seconds_count\{route="\/transactions"\} (\d+)\n/.exec(after)?.[1];
  t.equal(Number(count), asked + 1, 'the counts of an ended worker are retained');

  const replacement = await createSelfSigned(new Date());
  writeFileSync(file('cert.txt'), replacement.cert);
  writeFileSync(file('key.txt'), replacement.key);
  first.child.kill('SIGHUP');
  await until(() => first.output().split('certificates replaced').length === 3);
  for (const log of logs) renameSync(log, `${log}.old`);
  first.child.kill('SIGUSR2');
  await until(() => logs.every((log) => has(log, '"file-start"')));

  const gateway = { ...first.gateway, ca: replacement.cert };
  const late = ask(gateway, { path: '/v1/transactions/held', headers });
  await until(() => held.length === 1);
  first.child.kill('SIGTERM');
  await until(() => first.output().split('"msg":"draining"').length === 4);
  held[0]?.end('{}');
  t.equal((await late).status, 200, 'a request in progress completes during the drain');
  t.same(await first.exited, [0, null]);
  t.equal(fetches, 1);

  const second = await startWorkers();
  second.child.kill('SIGKILL');
  await until(() => ![...second.pids(1), ...second.pids(2)].some(isRunning));
  for (const log of logs)
    t.same(await findingsOf([`${log}.old`, log]), [], 'each worker closes its chain, or continues it');
});

t.test('a configuration that multiple workers cannot support is rejected with an explanation', async (t) => {
  const refusal = async (...args: string[]): Promise<string> => {
    let err = '';
    const status = await run(args, {
      out: () => undefined,
      err: (text) => (err += text),
      isTerminal: false,
      drained: () => Promise.resolve(),
    });
    return `${status} ${err}`;
  };
  const config = configure('stdout');
  for (const count of ['0', '65', '2.5', 'many']) {
    t.match(await refusal(...config, '--workers', count), /^2 [^]*Expected a number from 1 to 64/);
  }
  t.match(await refusal(...config, '--workers', '2'), /^2 [^]*accessLog\.destination: .*cannot share standard output/);
});

t.test('a worker whose process cannot be created has ended, so that it is replaced', async (t) => {
  cluster.setupPrimary({ cwd: '/nonexistent' });
  t.teardown(() => {
    cluster.setupPrimary({ cwd: process.cwd() });
  });
  const worker = new WorkerProcess(1);
  t.match(await worker.ended, { code: null, signal: null, problem: /ENOENT/ });
  t.equal(await worker.started, null);
  await t.rejects(new WorkerPool(1, createLogger('silent')).start(), { message: /could not be created: .*ENOENT/ });
});
