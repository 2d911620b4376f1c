import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import type { Teardown } from '../adapters/redis-server.js';
import { openSite, type Site } from '../deployment/deployment.js';
import { spawnPart } from '../deployment/process.js';
import { createPostgres, sqliteIn, type Database } from './databases.js';
import type { History } from './recorder.js';
import { Network } from './network.js';
import { startStore, type Store, type Topology } from './stores.js';

/** The parts of a deployment. */
export interface DeploymentOptions {
  readonly topology: Topology;
  readonly gateways: number;
  /** Number of registries; two need PostgreSQL. */
  readonly registries: number;
  readonly maxStaleSeconds: number;
  /** Whether gateways read all records into their caches when they start. Default: the product's default. */
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

const wallClock = new URL('wall-clock.js', import.meta.url).href;

/** A registry or gateway process that is restarted when it ends, as by a supervisor. */
export class Party {
  port = 0;
  readonly name: string;
  readonly network: Network;
  readonly #command: 'registry' | 'gateway';
  readonly #configFile: string;
  readonly #root: string;
  readonly #history: History;
  #child: ChildProcess | null = null;
  #log = (): string => '';
  #isExpectedToRun = false;
  #clockOffset = 0;

  constructor(
    name: string,
    command: 'registry' | 'gateway',
    { configFile, root }: { readonly configFile: string; readonly root: string },
    network: Network,
    history: History,
  ) {
    this.name = name;
    this.network = network;
    this.#command = command;
    this.#configFile = configFile;
    this.#root = root;
    this.#history = history;
  }

  /** Starts the process and resolves when it listens; at once if it is running. */
  async start(): Promise<void> {
    if (this.#isExpectedToRun && this.#child?.exitCode === null && this.#child.signalCode === null) return;
    this.#isExpectedToRun = true;
    const { child, ready, log } = spawnPart(this.#command, this.#configFile, {
      root: this.#root,
      nodeArguments: ['--import', wallClock],
      environment: { WALL_CLOCK_OFFSET: String(this.#clockOffset) },
      hasChannel: true,
    });
    this.#child = child;
    this.#log = log;
    child.once('exit', (code, signal) => {
      this.#history.add({ kind: 'ended', party: this.name, at: performance.now() });
      if (this.#isExpectedToRun && this.#child === child) this.#endedByItself(`${code ?? String(signal)}: ${log()}`);
    });
    const { api, http } = await ready;
    this.port = api ?? http ?? 0;
  }

  /** Kills the process like a crash. It then stays down until `start` is called. */
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

  /** Sets how far the wall clock of this process is ahead of the machine's. Restarts keep the offset. */
  setClock(offsetMilliseconds: number): void {
    this.#clockOffset = offsetMilliseconds;
    // A process that has ended cannot receive the offset; its restart starts with the offset.
    if (this.#child?.connected === true) this.#child.send({ clockOffset: offsetMilliseconds }, () => undefined);
  }

  /** The end of the process's log. */
  get log(): string {
    return this.#log();
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
    // If the process ends during this start, its exit handler calls this method again.
    void again().catch(() => (fault.ended = performance.now()));
  }
}

/** Starts registries, gateways, their stores and an upstream on free loopback ports. */
export async function startDeployment(t: Teardown, history: History, options: DeploymentOptions): Promise<Deployment> {
  const store = await startStore(t, options.topology);
  const [redis] = store.data;
  if (redis === undefined) throw new Error('there is no Redis');
  const site: Site = await openSite(t, {
    store: { redis, fields: {} },
    settings: {
      listen: { https: null, http: { host: '127.0.0.1', port: 0 } },
      trustedProxies: ['127.0.0.1/32'],
      keyStore: { cache: { maxStaleSeconds: options.maxStaleSeconds, preload: options.preload } },
    },
  });
  const { directory, token } = site;
  const database = options.registries > 1 ? await createPostgres(t) : sqliteIn(directory);

  async function startParty(command: 'registry' | 'gateway', number: number): Promise<Party> {
    const name = `${command}-${number}`;
    const network = await Network.open(t, store.reachable);
    const configFile = await site.configure(name, {
      keyStore: { redis: store.configOf(network) },
      registry: { database: { url: database.url } },
    });
    const build = { configFile, root: path.resolve(options.dist, '..') };
    const party = new Party(name, command, build, network, history);
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
