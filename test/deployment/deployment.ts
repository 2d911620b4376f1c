import { spawn } from 'node:child_process';
import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import https from 'node:https';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { setTimeout as wait } from 'node:timers/promises';
import { createSelfSigned } from '../../src/cli/dev/self-signed.js';
import { startRedis, type RedisServer, type Teardown } from '../adapters/redis-server.js';
import { productCommand } from '../product-command.js';
import { startServer } from '../start-server.js';
import { startPart, type Part, type PartName, type PartOptions } from './process.js';

/** Options of the configuration. */
type Settings = object;

/** A response of the admin API. */
interface AdminResponse<Data> {
  readonly status: number;
  readonly success: boolean;
  readonly message: string;
  readonly data: Data;
}

/** A registry that runs as a separate process. */
interface RegistryProcess extends Part {
  readonly url: string;
  /** Sends a request to the admin API. @param bearer default: the token of the deployment */
  readonly call: <Data = Record<string, unknown>>(
    method: string,
    target: string,
    body?: object,
    bearer?: string,
  ) => Promise<AdminResponse<Data>>;
  /** Its Prometheus metrics. */
  readonly metrics: () => Promise<string>;
}

/** A gateway that runs as a separate process. */
export interface GatewayProcess extends Part {
  /** Where a client that sends raw bytes connects, and the certificate that it trusts. */
  readonly target: { readonly port: number; readonly ca: string };
  readonly accessLog: string;
  /** Sends a request with a key on a kept connection; resolves with the status. */
  readonly ask: (key: string) => Promise<number>;
  /** Like `ask`, but repeats the request after 503, which a busy machine can cause. */
  readonly decide: (key: string) => Promise<number>;
  /** Like `ask`, but with the body of the response. */
  readonly get: (key: string) => Promise<{ readonly status: number; readonly body: string }>;
  /** Closes the kept connections. */
  readonly closeConnections: () => void;
  /** Reads a page of the management listener. */
  readonly page: (name: 'metrics' | 'readyz') => Promise<{ readonly status: number; readonly body: string }>;
}

/** What a deployment consists of. */
export interface DeploymentOptions {
  /** The database of the registry; default: an SQLite file. */
  readonly databaseUrl?: string | null | undefined;
  /** A running Redis, and the fields of `keyStore.redis` for connecting to it; default: a new Redis. */
  readonly store?: { readonly redis: RedisServer; readonly fields: object };
  /** Default: an upstream that responds with 200 to everything. */
  readonly upstreamUrl?: string;
  /** Whether Redis records are sealed with an HMAC. */
  readonly recordSecret?: boolean;
  /** Whether look-up ids of keys are peppered. */
  readonly pepper?: boolean;
  /** Whether the throttle counts invalid keys; default false. */
  readonly throttles?: boolean;
  /** Whether gateways check client addresses against a Tor exit list; its one entry is no client's address. */
  readonly torExits?: boolean;
  /** Whether gateways sign the merchant's identity for upstreams. */
  readonly signs?: boolean;
  /** Whether gateways have a management listener. */
  readonly management?: boolean;
  /** Additional options of all processes. */
  readonly settings?: Settings;
  /** How each process is started. */
  readonly process?: PartOptions;
}

/** How one gateway is started. */
interface GatewayOptions extends PartOptions {
  /** Number of worker processes; default: 1, without a primary process. */
  readonly workers?: number;
  /** Whether to wait until the gateway can look up keys; default true. */
  readonly isAwaited?: boolean;
}

/** Redis and an upstream, with a directory for the files of the processes that the test starts. */
export interface Site {
  readonly redis: RedisServer;
  readonly directory: string;
  readonly token: string;
  /** The certificate of the gateways. */
  readonly certificate: string;
  /** The registry's SQLite file; unused with another `databaseUrl`. */
  readonly databaseFile: string;
  readonly file: (name: string) => string;
  /** Writes the configuration of a process. @returns the file */
  readonly configure: (name: string, settings?: Settings) => Promise<string>;
  /** Writes a configuration for a process, and starts the process with it. */
  readonly start: (
    part: PartName,
    settings?: Settings,
    options?: PartOptions,
  ) => Promise<Part & { readonly name: string }>;
  readonly startRegistry: (settings?: Settings, options?: PartOptions) => Promise<RegistryProcess>;
  readonly startGateway: (settings?: Settings, options?: GatewayOptions) => Promise<GatewayProcess>;
}

/** A site with a registry. */
export interface Deployment extends Site {
  /** The running registry. */
  readonly registry: RegistryProcess;
  /** Sends a request to the admin API; rejects if it fails. */
  readonly admin: (method: string, target: string, body?: object) => Promise<AdminResponse<Record<string, unknown>>>;
  /** Kills the registry and starts another one on the same database. */
  readonly restartRegistry: (settings?: Settings) => Promise<void>;
  /** Runs `merchant-gateway` with these arguments against the registry; resolves with its standard output. */
  readonly run: (...args: string[]) => Promise<string>;
}

const readySeconds = 60;
const decisionSeconds = 60;

/** Starts Redis and an upstream on free loopback ports; the test then starts processes of the product. */
export async function openSite(t: Teardown, options: DeploymentOptions = {}): Promise<Site> {
  const directory = await mkdtemp(path.join(tmpdir(), 'merchant-gateway-deployment-'));
  t.teardown(() => rm(directory, { recursive: true, force: true }));
  const file = (name: string): string => path.join(directory, name);
  const redis = options.store?.redis ?? (await startRedis(t));
  const upstreamUrl = options.upstreamUrl ?? (await startUpstream(t));
  const { cert, key } = await createSelfSigned(new Date());
  const token = randomBytes(32).toString('hex');
  const signingKey = generateKeyPairSync('ed25519').privateKey.export({ type: 'pkcs8', format: 'pem' });
  const files = {
    ...{ 'cert.txt': cert, 'key.txt': key, 'token.txt': `${token}\n`, 'signing-key.txt': signingKey },
    ...{ 'exits.txt': '185.220.101.1\n', 'pepper.txt': `${randomBytes(32).toString('hex')}\n` },
    'record-secret.txt': randomBytes(32).toString('hex'),
  };
  await Promise.all(Object.entries(files).map(([name, content]) => writeFile(file(name), content, { mode: 0o600 })));
  const base = {
    listen: {
      https: { host: '127.0.0.1', port: 0, certFile: file('cert.txt'), keyFile: file('key.txt') },
      http: null,
      management: options.management === true ? { host: '127.0.0.1', port: 0 } : null,
    },
    keys: {
      ...(options.recordSecret === true && { recordSecretFile: file('record-secret.txt') }),
      ...(options.pepper === true && { pepperFile: file('pepper.txt') }),
    },
    throttle: { enabled: options.throttles === true },
    torExits:
      options.torExits === true
        ? { sources: [file('exits.txt')], snapshotFile: file('exits.json') }
        : { enabled: false },
    ...(options.signs === true && { identity: { signingKeyFile: file('signing-key.txt') } }),
    keyStore: { redis: options.store?.fields ?? { url: redis.url } },
    registry: {
      listen: { port: 0 },
      database: { url: options.databaseUrl ?? `sqlite:${file('registry.db')}` },
      tokenFile: file('token.txt'),
    },
    upstreams: { transactions: { url: upstreamUrl } },
    routes: [{ path: '/transactions', upstream: 'transactions', resource: 'transactions' }],
  };

  async function configure(name: string, settings: Settings = {}): Promise<string> {
    const own = merged(base, { accessLog: { destination: file(`${name}.log`) } });
    await writeFile(file(`${name}.yaml`), JSON.stringify(merged(merged(own, options.settings ?? {}), settings)));
    return file(`${name}.yaml`);
  }
  let started = 0;
  const start: Site['start'] = async (part, settings = {}, partOptions = {}) => {
    const name = `${part}-${(started += 1)}`;
    const config = await configure(name, settings);
    return { ...(await startPart(t, part, config, { ...options.process, ...partOptions })), name };
  };
  return {
    ...{ redis, directory, token, certificate: cert, databaseFile: file('registry.db'), file, configure, start },
    startRegistry: async (settings = {}, partOptions = {}) => {
      const part = await start('registry', settings, partOptions);
      const url = `http://127.0.0.1:${part.ports.api ?? 0}`;
      return { ...part, ...adminApi(url, token) };
    },
    startGateway: async (settings = {}, { workers = 1, isAwaited = true, ...partOptions } = {}) => {
      const part = await start('gateway', settings, {
        ...partOptions,
        ...(workers !== 1 && { commandArguments: ['--workers', `${workers}`] }),
      });
      const agent = new https.Agent({ keepAlive: true, maxSockets: 64, ca: cert });
      const closeConnections = (): void => {
        agent.destroy();
      };
      t.teardown(closeConnections);
      const client = clientOf(part, agent);
      if (isAwaited) await untilReady(client.ask);
      return {
        ...{ ...part, ...client, closeConnections },
        ...{ target: { port: part.ports.https ?? 0, ca: cert }, accessLog: file(`${part.name}.log`) },
      };
    },
  };
}

/** Starts everything except the gateways, on free loopback ports. */
export async function startDeployment(t: Teardown, options: DeploymentOptions = {}): Promise<Deployment> {
  const site = await openSite(t, options);
  let registry = await site.startRegistry();
  return {
    ...site,
    get registry() {
      return registry;
    },
    admin: async (method, target, body) => {
      const response = await registry.call(method, target, body);
      if (!response.success) throw new Error(`${method} ${target}: ${response.status} ${response.message}`);
      return response;
    },
    restartRegistry: async (settings) => {
      await registry.kill();
      registry = await site.startRegistry(settings);
    },
    run: async (...args) => {
      const more = ['--registry', registry.url, '--token-file', site.file('token.txt')];
      const child = spawn(...productCommand([...args, ...more]), { stdio: ['ignore', 'pipe', 'inherit'] });
      const closed = once(child, 'close') as Promise<[number | null]>;
      const [output, [status]] = await Promise.all([text(child.stdout), closed]);
      if (status !== 0) throw new Error(`merchant-gateway ${args.join(' ')} ended with ${String(status)}`);
      return output;
    },
  };
}

function adminApi(url: string, token: string): Pick<RegistryProcess, 'url' | 'call' | 'metrics'> {
  return {
    url,
    call: async (method, target, body, bearer = token) => {
      const response = await fetch(url + target, {
        method,
        headers: { authorization: `Bearer ${bearer}`, ...(body && { 'content-type': 'application/json' }) },
        ...(body && { body: JSON.stringify(body) }),
      });
      return { ...((await response.json()) as AdminResponse<never>), status: response.status };
    },
    metrics: async () => (await fetch(`${url}/metrics`)).text(),
  };
}

function clientOf({ ports }: Part, agent: https.Agent): Pick<GatewayProcess, 'ask' | 'decide' | 'get' | 'page'> {
  const where = { host: '127.0.0.1', port: ports.https, path: '/v1/transactions', agent };
  const get: GatewayProcess['get'] = async (key) => {
    const request = https.get({ ...where, headers: { 'x-api-key': key } });
    const [response] = (await once(request, 'response')) as [IncomingMessage];
    return { status: response.statusCode ?? 0, body: await text(response) };
  };
  const ask = async (key: string): Promise<number> => (await get(key)).status;
  return {
    get,
    ask,
    decide: async (key) => {
      for (const end = performance.now() + decisionSeconds * 1000; performance.now() < end;) {
        const status = await ask(key);
        if (status !== 503) return status;
        await wait(5);
      }
      throw new Error(`the gateway responded only with 503 for ${decisionSeconds} s`);
    },
    page: async (name) => {
      const response = await fetch(`http://127.0.0.1:${ports.management ?? 0}/${name}`);
      return { status: response.status, body: await response.text() };
    },
  };
}

/** Waits until an unknown key gets 401. A gateway listens before it can look up keys. */
async function untilReady(ask: (key: string) => Promise<number>): Promise<void> {
  const readyBy = performance.now() + readySeconds * 1000;
  while ((await ask('svc_live_nobody')) !== 401) {
    if (performance.now() > readyBy) throw new Error('the gateway did not become ready');
    await wait(20); // each request takes CPU time that the gateway needs for its start
  }
}

function startUpstream(t: Teardown): Promise<string> {
  return startServer(t, (request, response) => {
    request.resume();
    response.setHeader('content-type', 'application/json');
    response.end('{"success":true,"message":"OK","data":[]}');
  });
}

/** Merges options deeply; the second argument has precedence. */
export function merged(first: unknown, second: unknown): unknown {
  const isGroup = (value: unknown): value is Record<string, unknown> =>
    typeof value === 'object' && value !== null && !Array.isArray(value);
  if (!isGroup(first) || !isGroup(second)) return second;
  const names = [...new Set([...Object.keys(first), ...Object.keys(second)])];
  return Object.fromEntries(
    names.map((name) => [name, name in second ? merged(first[name], second[name]) : first[name]]),
  );
}
