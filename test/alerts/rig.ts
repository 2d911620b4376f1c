import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import http from 'node:http';
import https from 'node:https';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { setTimeout as wait } from 'node:timers/promises';
import { createSelfSigned } from '../../src/cli/dev/self-signed.js';
import { startRedis } from '../adapters/redis-server.js';
import { startUpstream } from '../edge/harness.js';
import type { Teardown } from '../edge/harness.js';
import { killAtEnd, limitedCommand, newInstallation, productCommand } from '../product-command.js';
import type { Scrape } from './timeline.js';

const token = 'an-administrators-token-of-enough-characters';

/** A process of the product. */
export interface Part {
  readonly child: ChildProcess;
  /** Its ports, by listener name. */
  readonly ports: Readonly<Record<string, number>>;
  /** The certificate and the access log of a gateway. */
  readonly files: { readonly certFile: string; readonly accessLog: string };
  /** Its current metrics; null if the process does not respond. */
  scrape(): Promise<Scrape | null>;
  /** Kills the process like a crash. */
  kill(): Promise<void>;
}

/** A request to a gateway. */
interface Asked {
  readonly path?: string;
  readonly key?: string | null;
  /** Whether to send over plain HTTP, against the rule. */
  readonly isPlain?: boolean;
  /** The client's address in the trusted proxy's X-Forwarded-For header. */
  readonly from?: string;
}

/** Merges options deeply; the second argument has precedence. */
function above(first: unknown, second: unknown): unknown {
  const isGroup = (value: unknown): value is Record<string, unknown> =>
    typeof value === 'object' && value !== null && !Array.isArray(value);
  if (!isGroup(first) || !isGroup(second)) return second;
  const names = [...new Set([...Object.keys(first), ...Object.keys(second)])];
  return Object.fromEntries(
    names.map((name) => [name, name in second ? above(first[name], second[name]) : first[name]]),
  );
}

/** Starts Redis and an upstream; the test then starts parts of the product as processes. */
export async function startRig(t: Teardown) {
  const redis = await startRedis(t);
  const upstream = await startUpstream(t);
  const folder = await mkdtemp(path.join(tmpdir(), 'merchant-gateway-alerts-'));
  t.teardown(() => rm(folder, { recursive: true, force: true }));
  const write = (name: string, text: string): string => {
    writeFileSync(path.join(folder, name), text, { mode: 0o600 });
    return path.join(folder, name);
  };
  const { cert, key } = await createSelfSigned(new Date());
  const base = {
    listen: { management: { host: '127.0.0.1', port: 0 }, http: { host: '127.0.0.1', port: 0 } },
    trustedProxies: ['127.0.0.1'],
    keyStore: {
      kind: 'redis',
      redis: { url: redis.url, commandTimeoutMilliseconds: 2000 },
      cache: { maxStaleSeconds: 4 },
    },
    keys: {
      pepperFile: write('pepper', 'a pepper of the test, long enough\n'),
      recordSecretFile: write('record-secret', `${randomBytes(32).toString('hex')}\n`),
    },
    torExits: {
      sources: [write('exits.txt', '198.51.100.66\n')],
      allowReserved: true,
      snapshotFile: path.join(folder, 'exits.json'),
    },
    limits: { eventLoopDelayMilliseconds: 200, drainDelaySeconds: 1, drainTimeoutSeconds: 1 },
    rateLimit: { requestsPerSecond: 1000, shared: true },
    upstreams: {
      payouts: { url: upstream.url, maxInFlight: 2 },
      transactions: { url: upstream.url },
    },
    routes: [
      { path: '/payouts', upstream: 'payouts', resource: 'payouts' },
      { path: '/transactions', upstream: 'transactions', resource: 'transactions' },
    ],
    registry: {
      listen: { host: '127.0.0.1', port: 0 },
      database: { url: `sqlite:${path.join(folder, 'registry.db')}` },
      tokenFile: write('token', `${token}\n`),
    },
    services: {
      listen: { host: '127.0.0.1', port: 0 },
      database: { url: `sqlite:${path.join(folder, 'services.db')}` },
    },
  };
  let started = 0;

  /** @param mostFileKibibytes limit on the size of its files; null: no limit */
  async function start(
    command: 'gateway' | 'registry' | 'services',
    options: object = {},
    mostFileKibibytes: number | null = null,
  ): Promise<Part> {
    started += 1;
    const own = `${command}-${started}`;
    const certFile = write(`${own}.crt`, cert);
    const accessLog = path.join(folder, `${own}.log`);
    const listening = { host: '127.0.0.1', port: 0, certFile, keyFile: write(`${own}.key`, key) };
    const ofGateway =
      command === 'gateway' ? { listen: { https: listening }, accessLog: { destination: accessLog } } : {};
    const config = write(`${own}.yaml`, JSON.stringify(above(above(base, ofGateway), options)));
    const args = [command, ...newInstallation(command), '--config', config];
    const child = spawn(
      ...(mostFileKibibytes === null ? productCommand(args) : limitedCommand(mostFileKibibytes, args)),
      { stdio: ['ignore', 'ignore', 'pipe'] },
    );
    killAtEnd(t, child);
    const ports = await portsOf(child);
    const isSecure = JSON.stringify(options).includes('"certFile"') && command === 'registry';
    const url = `${isSecure ? 'https' : 'http'}://127.0.0.1:${ports.management ?? ports.api ?? 0}/metrics`;
    return {
      child,
      ports,
      files: { certFile, accessLog },
      scrape: async () => {
        try {
          return { text: await (isSecure ? securely(url) : plainly(url)), time: Date.now() / 1000 };
        } catch {
          return null;
        }
      },
      kill: async () => {
        const ended = new Promise((resolve) => child.once('exit', resolve));
        if (child.exitCode !== null || child.signalCode !== null) return;
        child.kill('SIGKILL');
        await ended;
      },
    };
  }

  const agents = { plain: new http.Agent({ keepAlive: true }), tls: new https.Agent({ keepAlive: true, ca: cert }) };
  t.teardown(() => {
    agents.plain.destroy();
    agents.tls.destroy();
  });

  /** Sends a request; resolves with the status, or with 0 without a response. */
  function ask(
    gateway: Part,
    { path: target = '/transactions', key: apiKey = null, isPlain, from }: Asked,
  ): Promise<number> {
    const headers = {
      ...(apiKey === null ? {} : { 'x-api-key': apiKey }),
      ...(from === undefined ? {} : { 'x-forwarded-for': from }),
      ...(isPlain === true ? {} : { 'x-forwarded-proto': 'https' }),
    };
    const options = { host: '127.0.0.1', path: `/v1${target}`, headers };
    const request =
      isPlain === true
        ? http.get({ ...options, port: gateway.ports.http, agent: agents.plain })
        : https.get({ ...options, port: gateway.ports.https, agent: agents.tls, servername: 'localhost' });
    return new Promise((resolve) => {
      request.once('error', () => {
        resolve(0);
      });
      request.once('response', (response) => {
        response.resume().once('close', () => {
          resolve(response.statusCode ?? 0);
        });
      });
    });
  }

  async function admin(registry: Part, method: string, target: string, body?: object, bearer = token): Promise<Answer> {
    const response = await fetch(`http://127.0.0.1:${registry.ports.api ?? 0}${target}`, {
      method,
      headers: { authorization: `Bearer ${bearer}`, ...(body && { 'content-type': 'application/json' }) },
      ...(body && { body: JSON.stringify(body) }),
    });
    return { status: response.status, ...((await response.json()) as { data: Answer['data'] }) };
  }

  return { redis, upstream, folder, base, write, start, ask, admin };
}

/** A response of the registry. */
interface Answer {
  readonly status: number;
  readonly data: { readonly id: string; readonly key: string; readonly keyId: string };
}

export type Rig = Awaited<ReturnType<typeof startRig>>;

/** Reads the ports of a started process from its log. */
async function plainly(url: string): Promise<string> {
  return (await fetch(url, { signal: AbortSignal.timeout(10_000) })).text();
}

/** Reads a URL over TLS, whatever the certificate is. */
async function securely(url: string): Promise<string> {
  const request = https.get(url, { rejectUnauthorized: false, agent: false, timeout: 10_000 });
  const [response] = (await once(request, 'response')) as [http.IncomingMessage];
  return text(response);
}

async function portsOf(child: ChildProcess): Promise<Record<string, number>> {
  let log = '';
  return new Promise((resolve, reject) => {
    child.once('exit', () => {
      reject(new Error(`it ended: ${log}`));
    });
    child.stderr?.on('data', (chunk: Buffer) => {
      log = (log + chunk.toString()).slice(-20_000);
      const api = /"url":"https?:\/\/127\.0\.0\.1:(\d+)"/.exec(log)?.[1];
      const found = [
        ...log.matchAll(/"(https|http|management)":\{"address":"127\.0\.0\.1","family":"IPv4","port":(\d+)\}/g),
      ];
      if (found.length > 0) resolve(Object.fromEntries(found.map(([, name = '', port]) => [name, Number(port)])));
      else if (api !== undefined) resolve({ api: Number(api) });
    });
  });
}

/** Waits for a condition; throws an error that names `what` after the timeout. */
export async function until(what: string, isSo: () => Promise<boolean> | boolean, seconds = 30): Promise<void> {
  const end = Date.now() + seconds * 1000;
  while (!(await isSo())) {
    if (Date.now() > end) throw new Error(`not within ${seconds} s: ${what}`);
    await wait(50);
  }
}
