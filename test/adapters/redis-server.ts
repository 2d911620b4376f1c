import { spawn, spawnSync } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import net from 'node:net';
import { tmpdir, userInfo } from 'node:os';
import path from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { ignoreRepeatedErrors, type RedisAddress } from '../../src/adapters/redis/connection.js';

/** The reason why tests on a real Redis cannot run on this machine; false if they can. */
export const withoutRedis =
  spawnSync('redis-server', ['--version']).status === 0
    ? false
    : 'redis-server is not installed: NOTHING ABOUT REDIS IS TESTED';

/** A `redis-server` for one test, on a free port. */
export interface RedisServer {
  readonly port: number;
  readonly url: string;
  /** A client for test setup and inspection. */
  readonly client: Redis;
  /** Kills the process with SIGKILL, to simulate a crash. */
  kill(): Promise<void>;
  /** Restarts it empty on the same port. */
  restart(): Promise<void>;
  signal(signal: NodeJS.Signals): void;
}

/** Registers handlers that run when the test ends. */
export interface Teardown {
  teardown(handler: () => unknown): void;
}

/** The certificate of a server that accepts only TLS. */
export interface ServerCertificate {
  readonly cert: string;
  readonly key: string;
}

/**
 * The ports of test servers. They are below Linux's ephemeral ports, because another process could take an ephemeral
 * port before the server binds it. They end at 20,000, because a Cluster node also listens on its port plus 10,000.
 */
const ports = { from: 10_000, count: 10_000 };
const portsOfProcess = 40;
let portOffset = process.pid * portsOfProcess;

/** This folder has a file for each port that a test process uses. The file contains the id of that process. */
const reservations = path.join(tmpdir(), `merchant-gateway-ports-${userInfo().uid}`);

/**
 * Reserves a port until this process ends: a server that a test stops must find its port free at its restart.
 * @returns false if a running process has already reserved the port
 */
function reserve(port: number): boolean {
  mkdirSync(reservations, { recursive: true });
  const file = path.join(reservations, String(port));
  try {
    process.kill(Number(readFileSync(file, 'utf8')), 0);
    return false; // that process still runs
  } catch {
    rmSync(file, { force: true });
  }
  try {
    writeFileSync(file, String(process.pid), { flag: 'wx' });
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    return false;
  }
}

/** A port that is free now, and that no other call returns while this process runs. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = ports.from + (portOffset % ports.count);
    portOffset += 1;
    if (!reserve(port)) continue;
    const server = net.createServer();
    try {
      server.listen(port, '127.0.0.1');
      await once(server, 'listening');
    } catch {
      continue; // the port is in use
    }
    server.close();
    await once(server, 'close');
    return port;
  }
}

export async function startRedis(
  t: Teardown,
  settings: readonly string[] = [],
  args: readonly string[] = [],
  certificate: ServerCertificate | null = null,
): Promise<RedisServer> {
  const directory = await mkdtemp(path.join(tmpdir(), 'merchant-gateway-redis-'));
  let port = await freePort();
  const file = path.join(directory, 'redis.conf');
  const storage = args.includes('--sentinel') ? [] : ['save ""', 'appendonly no'];
  const configure = async (): Promise<void> => {
    const listening = certificate === null ? [`port ${port}`] : await secureLines(directory, port, certificate);
    const lines = [...listening, 'bind 127.0.0.1', ...storage, `dir ${directory}`, ...settings];
    await writeFile(file, `${lines.join('\n')}\n`);
  };
  let server: ChildProcess;
  const start = async (): Promise<void> => {
    // Not `inherit`: a server left behind by a broken test would keep CI's output pipe open, and CI would wait for it.
    server = spawn('redis-server', [file, ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
    server.stderr?.on('data', (chunk: Buffer) => process.stderr.write(chunk));
    let output = '';
    await new Promise<void>((resolve, reject) => {
      server.once('close', () => {
        reject(new Error(`redis-server ended: ${output}`));
      });
      server.stdout?.on('data', (chunk: Buffer) => {
        output = `${output}${chunk.toString()}`.slice(-2_000);
        if (/Ready to accept connections|Sentinel ID is/.test(output)) resolve();
      });
    });
  };
  const kill = async (): Promise<void> => {
    if (server.exitCode !== null || server.signalCode !== null) return;
    const ended = once(server, 'exit');
    server.kill('SIGKILL');
    await ended;
  };
  await configure();
  try {
    await start();
  } catch {
    // Another process may have taken the port since `freePort` checked it.
    port = await freePort();
    await configure();
    await start();
  }
  const tls = certificate === null ? {} : { tls: { ca: certificate.cert } };
  const host = certificate === null ? '127.0.0.1' : 'localhost';
  const client = ignoreRepeatedErrors(new Redis({ port, host, lazyConnect: true, retryStrategy: () => 20, ...tls }));
  client.on('error', () => undefined);
  t.teardown(async () => {
    client.disconnect();
    await kill();
    await rm(directory, { recursive: true, force: true });
  });
  return {
    port,
    url: `${certificate === null ? 'redis' : 'rediss'}://127.0.0.1:${port}`,
    client,
    kill,
    restart: start,
    signal: (signal) => server.kill(signal),
  };
}

async function secureLines(directory: string, port: number, { cert, key }: ServerCertificate): Promise<string[]> {
  const [certFile, keyFile] = [path.join(directory, 'cert.txt'), path.join(directory, 'key.txt')];
  await writeFile(certFile, cert);
  await writeFile(keyFile, key);
  return [
    ...['port 0', `tls-port ${port}`, 'tls-auth-clients no', 'tls-replication yes', 'tls-cluster yes'],
    ...[`tls-cert-file ${certFile}`, `tls-key-file ${keyFile}`, `tls-ca-cert-file ${certFile}`],
  ];
}

/**
 * Polls a condition, because the events of another process cannot be awaited. Fails after a minute, which is longer
 * than the 30 s for which a sentinel replaces no master after a stall (its TILT mode).
 */
export async function until(holds: () => Promise<boolean> | boolean, what: string): Promise<void> {
  for (const end = performance.now() + 60_000; !(await holds());) {
    if (performance.now() > end) throw new Error(`never: ${what}`);
    await wait(10);
  }
}

/** The `run_id` that a server generated at its start. */
export async function runIdOf({ client }: Pick<RedisServer, 'client'>): Promise<string> {
  return /^run_id:(\w+)/m.exec(await client.info('server'))?.[1] ?? '';
}

/** The address of a server without users, TLS and replicas. */
export function plainRedis(url: string): RedisAddress {
  return {
    ...{ url, sentinels: null, masterName: '', cluster: null, username: null, password: null, ca: null },
    commandTimeoutMilliseconds: 2_000,
  };
}
