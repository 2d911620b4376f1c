import { spawn, type ChildProcess } from 'node:child_process';
import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import http from 'node:http';
import https from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createSelfSigned } from '../../src/cli/dev/self-signed.js';
import { startRedis, type RedisServer } from '../adapters/redis-server.js';
import { imageEnvironment } from './image-environment.js';
import type { Target } from './load/connection.js';
import { newInstallation } from '../product-command.js';

const main = path.resolve('dist/cli/main.js');
const startSeconds = 60;

/** A response of the admin API. */
interface AdminAnswer {
  readonly status: number;
  readonly data: Record<string, unknown>;
}

/** A gateway in a separate process. */
export interface GatewayProcess {
  readonly pid: number;
  readonly target: Target;
  readonly process: ChildProcess;
  /** Sends a request with a key; resolves with the status code. */
  ask(key: string): Promise<number>;
}

/** Registry, Redis and an upstream, with their files in a temporary directory. */
export interface Deployment {
  readonly redis: RedisServer;
  readonly registryPid: number;
  readonly registryProcess: ChildProcess;
  readonly configFile: string;
  /** The registry's SQLite file; unused with another `databaseUrl`. */
  readonly databaseFile: string;
  readonly accessLogFile: string;
  file(name: string): string;
  admin(method: string, target: string, body?: object): Promise<AdminAnswer>;
  /** The registry's Prometheus metrics. */
  metrics(): Promise<string>;
  /**
   * @param configFile of its own, such as one with another access log; default: that of the deployment
   * @param workers number of worker processes; default: 1, without a primary process
   */
  startGateway(configFile?: string, workers?: number): Promise<GatewayProcess>;
  /** Kills the registry and starts another one on the same database. */
  restartRegistry(): Promise<void>;
  /** Runs `merchant-gateway` with these arguments against the registry; resolves with its standard output. */
  run(...args: string[]): Promise<string>;
}

/** A running Redis, and the fields of `keyStore.redis` for connecting to it. */
interface RunningStore {
  readonly redis: RedisServer;
  readonly config: string;
}

/** Teardown handlers, run in reverse order of registration. */
export class Teardowns {
  readonly #handlers: (() => unknown)[] = [];

  teardown(handler: () => unknown): void {
    this.#handlers.push(handler);
  }

  async close(): Promise<void> {
    for (const handler of this.#handlers.splice(0).toReversed()) await handler();
  }
}

/** Starts everything except the gateways, on free loopback ports. */
export async function startDeployment(
  t: Teardowns,
  options: {
    readonly databaseUrl?: string | undefined;
    readonly store?: RunningStore;
    /** Whether Redis records are sealed with an HMAC. */
    readonly recordSecret?: boolean;
    /** Additional configuration, as YAML. */
    readonly settings?: string;
    /** Whether the throttle counts invalid keys; default false. */
    readonly throttles?: boolean;
    /** The program that starts gateways; default: this build. */
    readonly gatewayProgram?: string;
    /**
     * A module that Node imports first in registry and gateways, with an IPC channel to this process. They run without
     * TurboFan: V8 counts no calls of optimised functions, and when it optimises one depends on the machine's load.
     */
    readonly preload?: string;
    /** Whether gateways check client addresses against a Tor exit list; its one entry is no client's address. */
    readonly torExits?: boolean;
    /** Whether gateways sign the merchant's identity for upstreams. */
    readonly signs?: boolean;
  } = {},
): Promise<Deployment> {
  const directory = await mkdtemp(path.join(tmpdir(), 'merchant-gateway-bench-'));
  t.teardown(() => rm(directory, { recursive: true, force: true }));
  const file = (name: string): string => path.join(directory, name);
  const redis = options.store?.redis ?? (await startRedis(t));
  const upstream = http.createServer((request, response) => {
    request.resume();
    response.setHeader('content-type', 'application/json');
    response.end('{"success":true,"message":"OK","data":[]}');
  });
  await once(upstream.listen(0, '127.0.0.1'), 'listening');
  t.teardown(() => {
    upstream.closeAllConnections();
    upstream.close();
  });
  const { cert, key } = await createSelfSigned(new Date());
  const token = randomBytes(32).toString('hex');
  await Promise.all([
    writeFile(file('cert.txt'), cert),
    writeFile(file('key.txt'), key, { mode: 0o600 }),
    writeFile(file('token.txt'), token, { mode: 0o600 }),
    writeFile(
      file('signing-key.txt'),
      generateKeyPairSync('ed25519').privateKey.export({ type: 'pkcs8', format: 'pem' }),
      {
        mode: 0o600,
      },
    ),
    writeFile(file('exits.txt'), '185.220.101.1\n'),
    writeFile(file('record-secret.txt'), randomBytes(32).toString('hex'), { mode: 0o600 }),
  ]);
  const configFile = file('config.yaml');
  await writeFile(
    configFile,
    `listen:
  https: { host: 127.0.0.1, port: 0, certFile: ${file('cert.txt')}, keyFile: ${file('key.txt')} }
  http: null
  management: null
${options.recordSecret === true ? `keys: { recordSecretFile: ${file('record-secret.txt')} }` : ''}
throttle: { enabled: ${String(options.throttles === true)} }
torExits: { ${options.torExits === true ? `sources: [${file('exits.txt')}], snapshotFile: ${file('exits.json')}` : 'enabled: false'} }
${options.signs === true ? `identity: { signingKeyFile: ${file('signing-key.txt')} }` : ''}
accessLog: { destination: ${file('access.log')} }
keyStore: { redis: { ${options.store?.config ?? `url: "${redis.url}"`} }, cache: { maxAgeSeconds: 600, unknownMaxAgeSeconds: 600 } }
registry: { listen: { port: 0 }, database: { url: "${options.databaseUrl ?? `sqlite:${file('registry.db')}`}" }, tokenFile: ${file('token.txt')} }
upstreams: { transactions: { url: "http://127.0.0.1:${(upstream.address() as AddressInfo).port}" } }
routes: [{ path: /transactions, upstream: transactions, resource: transactions }]
log: { level: info }
${options.settings ?? ''}
`,
  );

  async function start(
    command: string,
    started: RegExp,
    configuration = configFile,
    more: readonly string[] = [],
  ): Promise<{ child: ChildProcess; match: string }> {
    const program = command === 'gateway' ? (options.gatewayProgram ?? main) : main;
    const { preload } = options;
    const ownArguments = [program, command, '--config', configuration, ...newInstallation(command), ...more];
    const child = spawn(
      process.execPath,
      preload === undefined ? ownArguments : ['--no-opt', '--import', preload, ...ownArguments],
      {
        env: { ...process.env, ...imageEnvironment },
        stdio: ['ignore', 'ignore', 'pipe', ...(preload === undefined ? [] : ['ipc' as const])],
      },
    );
    t.teardown(async () => {
      if (child.exitCode !== null || child.signalCode !== null) return;
      child.kill('SIGKILL');
      await once(child, 'exit');
    });
    let log = '';
    const match = await new Promise<string>((resolve, reject) => {
      const late = setTimeout(() => {
        reject(new Error(`${command} did not start: ${log}`));
      }, startSeconds * 1000);
      const look = (chunk: Buffer): void => {
        log += chunk.toString();
        const found = started.exec(log)?.[1];
        if (found === undefined) return;
        clearTimeout(late);
        child.stderr?.off('data', look).resume();
        resolve(found);
      };
      child.stderr?.on('data', look);
      child.once('exit', () => {
        reject(new Error(`${command} ended: ${log}`));
      });
    });
    return { child, match };
  }

  const registryStarted = /"url":"(http:[^"]+)"/;
  let registry = await start('registry', registryStarted);
  return {
    redis,
    registryPid: registry.child.pid ?? 0,
    registryProcess: registry.child,
    configFile,
    databaseFile: file('registry.db'),
    accessLogFile: file('access.log'),
    file,
    async admin(method, target, body) {
      const response = await fetch(registry.match + target, {
        method,
        headers: {
          authorization: `Bearer ${token}`,
          ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      });
      const { data, message } = (await response.json()) as AdminAnswer & { message: string };
      if (!response.ok) throw new Error(`${method} ${target}: ${response.status} ${message}`);
      return { status: response.status, data };
    },
    metrics: async () => (await fetch(`${registry.match}/metrics`)).text(),
    async restartRegistry() {
      registry.child.kill('SIGKILL');
      await once(registry.child, 'exit');
      registry = await start('registry', registryStarted);
    },
    async startGateway(configuration, workers = 1) {
      const { child, match } = await start(
        'gateway',
        /"https":\{"address":"127\.0\.0\.1","family":"IPv4","port":(\d+)\}/,
        configuration,
        workers === 1 ? [] : ['--workers', `${workers}`],
      );
      const agent = new https.Agent({ keepAlive: true, maxSockets: 64, ca: cert });
      t.teardown(() => {
        agent.destroy();
      });
      const where = { host: '127.0.0.1', port: Number(match), path: '/v1/transactions', agent };
      const ask = (apiKey: string): Promise<number> =>
        new Promise((resolve, reject) => {
          https
            .get({ ...where, headers: { 'x-api-key': apiKey } }, (response) => {
              response.resume().once('end', () => {
                resolve(response.statusCode ?? 0);
              });
            })
            .once('error', reject);
        });
      // The gateway listens before it has loaded the records.
      const readyBy = performance.now() + startSeconds * 1000;
      while ((await ask('svc_live_nobody')) !== 401) {
        if (performance.now() > readyBy) throw new Error('the gateway did not become ready');
      }
      return { pid: child.pid ?? 0, process: child, target: { port: where.port, ca: cert }, ask };
    },
    async run(...args) {
      const child = spawn(
        process.execPath,
        [main, ...args, '--registry', registry.match, '--token-file', file('token.txt')],
        { stdio: ['ignore', 'pipe', 'inherit'] },
      );
      let output = '';
      child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()));
      const [status] = (await once(child, 'close')) as [number | null];
      if (status !== 0) throw new Error(`merchant-gateway ${args.join(' ')} ended with ${status}`);
      return output;
    },
  };
}

/** Peak (`VmHWM`) or current (`VmRSS`) resident memory of a process in MiB; null where `/proc` does not report it. */
export async function residentMebibytes(pid: number, which: 'VmHWM' | 'VmRSS'): Promise<number | null> {
  const text = await readFile(`/proc/${pid}/status`, 'utf8').catch(() => '');
  const kibibytes = new RegExp(`^${which}:\\s+(\\d+) kB$`, 'm').exec(text)?.[1];
  return kibibytes === undefined ? null : Math.round(Number(kibibytes) / 1024);
}
