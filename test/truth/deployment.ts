import { spawn, type ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import type { Teardown } from '../adapters/redis-server.js';
import { createPostgres, sqliteIn, type Database } from './databases.js';
import type { History } from './recorder.js';
import { Network } from './network.js';
import { startStore, type Store, type Topology } from './stores.js';
import { newInstallation } from '../product-command.js';

/** The parts of a deployment. */
export interface DeploymentOptions {
  readonly topology: Topology;
  readonly gateways: number;
  /** Number of registries; two need PostgreSQL. */
  readonly registries: number;
  readonly maxStaleSeconds: number;
  /** Default: the product's default. */
  readonly preload?: boolean;
  /** The `dist` folder of the built product. */
  readonly dist: string;
}

/** A running deployment: its processes, and the relays in this process. */
export interface Deployment {
  readonly store: Store;
  readonly database: Database;
  readonly registries: readonly Party[];
  readonly gateways: readonly Party[];
  readonly token: string;
  readonly directory: string;
}

/** The client address in X-Forwarded-For. */
export const callerAddress = '8.8.4.4';

const startSeconds = 60;
const wallClock = new URL('wall-clock.js', import.meta.url).href;
const started = {
  registry: /"url":"http:\/\/127\.0\.0\.1:(\d+)"/,
  gateway: /"http":\{"address":"127\.0\.0\.1","family":"IPv4","port":(\d+)\}/,
};

/** A registry or gateway process that is restarted when it ends, as by a supervisor. */
export class Party {
  port = 0;
  readonly name: string;
  readonly network: Network;
  readonly #command: 'registry' | 'gateway';
  readonly #args: readonly string[];
  readonly #history: History;
  #child: ChildProcess | null = null;
  #log = '';
  #isExpectedToRun = false;
  #clockOffset = 0;

  constructor(
    name: string,
    command: 'registry' | 'gateway',
    args: readonly string[],
    network: Network,
    history: History,
  ) {
    this.name = name;
    this.network = network;
    this.#command = command;
    this.#args = args;
    this.#history = history;
  }

  /** Starts the process and resolves when it listens; at once if it is running. */
  async start(): Promise<void> {
    if (this.#isExpectedToRun && this.#child?.exitCode === null && this.#child.signalCode === null) return;
    this.#isExpectedToRun = true;
    // The test runner's instrumentation in NODE_OPTIONS takes most of a process's start time.
    const env: NodeJS.ProcessEnv = { ...process.env, WALL_CLOCK_OFFSET: String(this.#clockOffset) };
    delete env.NODE_OPTIONS;
    const child = spawn(process.execPath, ['--import', wallClock, ...this.#args], {
      stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
      env,
    });
    this.#child = child;
    let log = '';
    child.once('exit', (code, signal) => {
      this.#history.add({ kind: 'ended', party: this.name, at: performance.now() });
      if (this.#isExpectedToRun && this.#child === child) this.#endedByItself(`${code ?? String(signal)}: ${log}`);
    });
    this.port = await new Promise<number>((resolve, reject) => {
      const late = setTimeout(() => {
        reject(new Error(`${this.name} did not start: ${log}`));
      }, startSeconds * 1000);
      child.once('exit', () => {
        clearTimeout(late);
        reject(new Error(`${this.name} ended: ${log}`));
      });
      child.stderr?.on('data', (chunk: Buffer) => {
        log = (log + chunk.toString()).slice(-20_000);
        this.#log = log;
        const port = started[this.#command].exec(log)?.[1];
        if (port === undefined) return;
        clearTimeout(late);
        resolve(Number(port));
      });
    });
  }

  /** Kills the process like a crash. */
  async kill(): Promise<void> {
    this.#isExpectedToRun = false;
    const child = this.#child;
    if (child?.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, 'exit');
    child.kill('SIGKILL');
    await ended;
  }

  signal(signal: 'SIGSTOP' | 'SIGCONT'): void {
    this.#child?.kill(signal);
  }

  /** Sets the offset of the wall clock from the machine's, for this process and its restarts. */
  setClock(offsetMilliseconds: number): void {
    this.#clockOffset = offsetMilliseconds;
    // A process that has ended cannot receive the offset; its restart starts with the offset.
    if (this.#child?.connected === true) this.#child.send({ clockOffset: offsetMilliseconds }, () => undefined);
  }

  /** The end of its log. */
  get log(): string {
    return this.#log;
  }

  #endedByItself(why: string): void {
    const begun = performance.now();
    const what = `${this.name} ended by itself: ${why.slice(-2000)}`;
    const fault = this.#history.add({ kind: 'fault', name: 'crash', what, begun, ended: Infinity, isolated: [] });
    const again = async (): Promise<void> => {
      await wait(500);
      if (!this.#isExpectedToRun) return;
      await this.start();
      fault.ended = performance.now();
    };
    // A process that ends during its start arrives here again.
    void again().catch(() => (fault.ended = performance.now()));
  }
}

/** Starts registries, gateways, their stores and an upstream on free loopback ports. */
export async function startDeployment(t: Teardown, history: History, options: DeploymentOptions): Promise<Deployment> {
  const directory = await mkdtemp(path.join(tmpdir(), 'merchant-gateway-soak-'));
  t.teardown(() => rm(directory, { recursive: true, force: true }));
  const store = await startStore(t, options.topology);
  const database = options.registries > 1 ? await createPostgres(t) : sqliteIn(directory);
  const upstream = await startUpstream(t);
  const token = randomBytes(32).toString('hex');
  const tokenFile = path.join(directory, 'token.txt');
  await writeFile(tokenFile, token);

  const preload = options.preload === undefined ? '' : `preload: ${options.preload}, `;
  async function startParty(command: 'registry' | 'gateway', number: number): Promise<Party> {
    const name = `${command}-${number}`;
    const network = await Network.open(t, store.reachable);
    const config = path.join(directory, `${name}.yaml`);
    await writeFile(
      config,
      `listen: { https: null, http: { host: 127.0.0.1, port: 0 }, management: null }
trustedProxies: ["127.0.0.1/32"]
throttle: { enabled: false }
torExits: { enabled: false }
accessLog: { destination: ${path.join(directory, `${name}.log`)} }
keyStore: { redis: { ${store.configOf(network)} }, cache: { ${preload}maxStaleSeconds: ${options.maxStaleSeconds} } }
registry: { listen: { port: 0 }, database: { url: "${database.url}" }, tokenFile: ${tokenFile} }
upstreams: { transactions: { url: "http://127.0.0.1:${upstream}" } }
routes: [{ path: /transactions, upstream: transactions, resource: transactions }]
`,
    );
    const args = [path.join(options.dist, 'cli/main.js'), command, '--config', config, ...newInstallation(command)];
    const party = new Party(name, command, args, network, history);
    t.teardown(() => party.kill());
    await party.start();
    return party;
  }
  const start = async (command: 'registry' | 'gateway', count: number): Promise<Party[]> => {
    const parties: Party[] = [];
    for (let number = 1; number <= count; number += 1) parties.push(await startParty(command, number));
    return parties;
  };
  const registries = await start('registry', options.registries);
  return { store, database, registries, gateways: await start('gateway', options.gateways), token, directory };
}

async function startUpstream(t: Teardown): Promise<number> {
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
  return (upstream.address() as AddressInfo).port;
}
