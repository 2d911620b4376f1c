import { fork, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { createSelfSigned } from '../../src/cli/dev/self-signed.js';
import { liveKey, recordsOf } from '../edge/harness.js';
import { numberIn, optionsOf, say } from './command-line.js';
import { Teardowns } from '../deployment/teardowns.js';
import { startServer } from '../start-server.js';
import { residentMebibytes } from './resident-memory.js';
import { round } from './distribution.js';
import type { IdleOrder } from './idle-clients.js';

// Measures the memory per idle connection of a gateway, with a separate process for each kind of connection.
// src/config/memory-plan.ts is based on these figures.

const options = optionsOf({
  connections: '10000',
  addresses: '4',
  kinds: 'tcp,tcp refused,tls,refused,accepted',
  settle: '5',
});
const count = numberIn('connections', options.connections);
const addresses = numberIn('addresses', options.addresses);
const settleSeconds = numberIn('settle', options.settle);
const openSeconds = 300;

const requestWith = (header: string): string => `GET /v1/transactions HTTP/1.1\r\nhost: localhost\r\n${header}\r\n`;
/**
 * For each kind of connection: whether it uses TLS, and the request that it sends before it becomes idle (empty: none).
 */
const kinds: Readonly<Record<string, { readonly isTls: boolean; readonly request: string }>> = {
  tcp: { isTls: false, request: '' },
  tls: { isTls: true, request: '' },
  'tcp refused': { isTls: false, request: requestWith('') },
  refused: { isTls: true, request: requestWith('') },
  accepted: { isTls: true, request: requestWith(`x-api-key: ${liveKey}\r\n`) },
};

const t = new Teardowns();
try {
  const directory = await mkdtemp(path.join(tmpdir(), 'merchant-gateway-bench-'));
  t.teardown(() => rm(directory, { recursive: true, force: true }));
  const results = [];
  for (const kind of options.kinds.split(',')) {
    say(`${count} connections: ${kind}`);
    results.push({ kind, ...(await measure(directory, kind)) });
    say(JSON.stringify(results.at(-1)));
  }
  if (options.json) process.stdout.write(`${JSON.stringify({ node: process.version, connections: results })}\n`);
  else {
    const columns = ['kind', 'open', 'MiB before', 'MiB', 'most MiB', 'KiB each'];
    const rows = results.map(({ kind, open, before, after, most, kibibytesEach }) =>
      [kind, open, before, after, most, kibibytesEach].map(String),
    );
    process.stdout.write(
      [columns, ...rows].map((row) => row.map((cell) => cell.padEnd(12)).join('')).join('\n') + '\n',
    );
  }
} finally {
  await t.close();
}

async function measure(directory: string, kind: string) {
  const order = kinds[kind];
  if (order === undefined) throw new Error(`--kinds: expected some of ${Object.keys(kinds).join(', ')}`);
  const running = new Teardowns();
  try {
    const gateway = await startGateway(directory, running);
    await wait(settleSeconds * 1000);
    const before = (await residentMebibytes(gateway.pid, 'VmRSS')) ?? NaN;
    const { caFile } = gateway;
    const each = Math.ceil(count / addresses);
    const opened = Array.from({ length: addresses }, (_, index) =>
      hold(running, {
        ...{ port: order.isTls ? gateway.https : gateway.http, from: `127.0.0.${index + 2}`, count: each },
        ...{ caFile: order.isTls ? caFile : null, request: order.request },
      }),
    );
    const open = (await Promise.all(opened)).reduce((sum, part) => sum + part, 0);
    await wait(settleSeconds * 1000);
    const after = (await residentMebibytes(gateway.pid, 'VmRSS')) ?? NaN;
    const most = (await residentMebibytes(gateway.pid, 'VmHWM')) ?? NaN;
    return { open, before, after, most, kibibytesEach: round(((after - before) * 1024) / open) };
  } finally {
    await running.close();
  }
}

/**
 * Starts a gateway without Redis and registry, with limits that this measurement does not reach. Returns its process
 * id, its ports and its CA file.
 */
async function startGateway(directory: string, t: Teardowns) {
  const url = await startServer(t, (_request, response) => response.end('{"success":true}'));
  const { cert, key } = await createSelfSigned(new Date());
  const file = (name: string): string => path.join(directory, name);
  await writeFile(file('cert.txt'), cert);
  await writeFile(file('key.txt'), key, { mode: 0o600 });
  await writeFile(file('records.json'), JSON.stringify(recordsOf(liveKey)));
  const address = { host: '127.0.0.1', port: 0 };
  const config = {
    listen: {
      https: { ...address, certFile: file('cert.txt'), keyFile: file('key.txt') },
      ...{ http: address, management: null },
    },
    keyStore: { kind: 'memory', memory: { recordsFile: file('records.json') } },
    torExits: { enabled: false },
    accessLog: { destination: file('access.log') },
    upstreams: { transactions: { url } },
    routes: [{ path: '/transactions', upstream: 'transactions', resource: 'transactions' }],
    limits: {
      connections: count + 100,
      // All connections come from a few addresses; the limits per address and of handshakes must not reject them.
      ...{ handshakesPerSecond: 1_000_000, handshakeBurst: 1_000_000, connectionsPerAddress: count + 100 },
      keepAliveTimeoutSeconds: 3600,
      headersTimeoutSeconds: 600,
      requestTimeoutSeconds: 600,
    },
  };
  await writeFile(file('config.json'), JSON.stringify(config));
  const child = spawn(process.execPath, ['dist/cli/main.js', 'gateway', '--config', file('config.json')], {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  t.teardown(async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill('SIGKILL');
    await once(child, 'exit');
  });
  let log = '';
  child.stderr.on('data', (chunk: Buffer) => (log += chunk.toString()));
  const end = performance.now() + 60_000;
  const portOf = (name: string): number => Number(new RegExp(`"${name}":\\{[^}]*"port":(\\d+)`).exec(log)?.[1] ?? 0);
  while (!log.includes('warmed up') || portOf('http') === 0) {
    if (performance.now() > end || child.exitCode !== null) throw new Error(`the gateway did not start: ${log}`);
    await wait(50);
  }
  return { pid: child.pid ?? 0, https: portOf('https'), http: portOf('http'), caFile: file('cert.txt') };
}

/** Opens idle connections in a child process. @returns how many it holds open */
async function hold(t: Teardowns, order: IdleOrder): Promise<number> {
  const child = fork(path.resolve('dist-test/test/bench/idle-clients.js'), [JSON.stringify(order)]);
  t.teardown(async () => {
    if (child.exitCode !== null) return;
    child.disconnect();
    await once(child, 'exit');
  });
  const signal = AbortSignal.timeout(openSeconds * 1000);
  const [{ open }] = (await once(child, 'message', { signal })) as [{ open: number }];
  return open;
}
