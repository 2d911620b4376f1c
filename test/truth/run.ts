import { setTimeout as wait } from 'node:timers/promises';
import { Random } from '../fuzz/random.js';
import type { Teardown } from '../adapters/redis-server.js';
import { Changes } from './changes.js';
import { check, type Limits, type Violation } from './checker.js';
import { startDeployment, type Deployment, type DeploymentOptions } from './deployment.js';
import { FaultPlan } from './fault-plan.js';
import type { Injected } from './fault-kind.js';
import { faultKinds, losesData } from './faults.js';
import { isInForce, type Fault, type HistoryEvent } from './history.js';
import { Keys } from './keys.js';
import { History } from './recorder.js';
import { Requests } from './requests.js';

/** What is done to a deployment. */
export interface RunOptions extends DeploymentOptions {
  readonly seed: number;
  readonly seconds: number;
  /** It ends when so many changes are made. */
  readonly changes: number;
  /** Names of faults; each must be possible here. */
  readonly faults: readonly string[];
  /** It ends when the rounds of each fault had so many changes. */
  readonly each?: number | null;
  /** The faults of the first rounds, where they are not chosen. */
  readonly rounds?: readonly (readonly string[])[];
  /** How many callers each gateway has, and how long each pauses between two requests. */
  readonly callers: number;
  readonly pauseMilliseconds: number;
  /** How long a fault lasts, at most. */
  readonly holdMilliseconds: number;
  /** How many callers make changes. */
  readonly changers: number;
  readonly limits: Limits;
  /** Told what was done, and how it went. */
  readonly onRound: (round: Round) => void;
  /** Ends the run after the round that is under way. */
  readonly signal?: AbortSignal;
}

/** One or two faults, until everything is well again. */
export interface Round {
  readonly number: number;
  readonly faults: readonly string[];
  readonly what: string;
  readonly changes: number;
  readonly inForce: number;
  readonly requests: number;
  /** Requests that began after something about their key or merchant was in force. */
  readonly afterInForce: number;
  /** Of these: those that must not be accepted. */
  readonly toBeRefused: number;
  readonly violations: readonly Violation[];
  /** How long after the last cause had gone every gateway decided and a change was in force; null: not within the limits. */
  readonly recoveredAfter: number | null;
  /** Everything that happened in it, where something is wrong. */
  readonly events: readonly HistoryEvent[];
  /** The last that each process wrote to its log, where something is wrong. */
  readonly logs: readonly { readonly party: string; readonly log: string }[];
}

const mostGap = 700;
const quietMilliseconds = 300;
/** So that there is a request or a change that is too late. */
const someMilliseconds = 5000;

/** Starts a deployment, and goes round after round until the time or the changes are used up. */
export async function run(t: Teardown, options: RunOptions): Promise<Round[]> {
  const history = new History();
  const starting = begin(history, 'start', 'the start');
  const deployment = await startDeployment(t, history, options);
  const soak = new Soak(deployment, history, options);
  t.teardown(() => soak.stop());
  await soak.begin();
  await soak.recovered(performance.now());
  starting.ended = performance.now();
  const random = new Random(options.seed);
  const { faults, each = null, rounds: given = [] } = options;
  const plan = new FaultPlan(random, { faults, each, given });
  const rounds: Round[] = [];
  const deadline = performance.now() + options.seconds * 1000;
  let changes = 0;
  const isOver = (): boolean => plan.isDone || changes >= options.changes || options.signal?.aborted === true;
  while (performance.now() < deadline && !isOver()) {
    const round = await soak.round(rounds.length + 1, plan.next(), random);
    changes += round.changes;
    plan.made(round.faults, round.changes);
    rounds.push(round);
    options.onRound(round);
  }
  return rounds;
}

interface Begun {
  readonly fault: Fault;
  readonly isolation: Fault;
  readonly end: () => Promise<unknown>;
}

class Soak {
  readonly #deployment: Deployment;
  readonly #history: History;
  readonly #options: RunOptions;
  readonly #requests: readonly Requests[];
  readonly #changes: readonly Changes[];
  readonly #keys = new Keys();
  #isRunning = true;
  #isPaused = false;
  #loops: Promise<unknown> = Promise.resolve();
  /** The violations that were reported. */
  readonly #told = new Set<string>();
  /** Events before this one belong to former rounds. */
  #from = 0;
  /** Since when Redis has lost nothing. */
  #storeKeptSince = -Infinity;

  constructor(deployment: Deployment, history: History, options: RunOptions) {
    this.#deployment = deployment;
    this.#history = history;
    this.#options = options;
    this.#requests = deployment.gateways.map((gateway) => new Requests(gateway, history));
    this.#changes = Array.from({ length: options.changers }, (_, index) => {
      const random = new Random(options.seed + 1 + index);
      return new Changes(deployment, history, random, this.#keys, (keys) => {
        for (const key of keys) for (const requests of this.#requests) requests.askBeside(key);
      });
    });
  }

  async begin(): Promise<void> {
    await Promise.all(this.#changes.map((changes) => changes.prepare()));
    const isRunning = (): boolean => this.#isRunning;
    const { callers, pauseMilliseconds, seed } = this.#options;
    this.#loops = Promise.all([
      ...this.#changes.map((changes) => changes.run(isRunning, () => this.#isPaused)),
      ...this.#requests.flatMap((requests, gateway) =>
        Array.from({ length: callers }, (_, caller) =>
          requests.run(this.#keys, new Random(seed + 1000 * (gateway + 1) + caller), pauseMilliseconds, isRunning),
        ),
      ),
    ]);
  }

  async stop(): Promise<void> {
    this.#isRunning = false;
    for (const each of [...this.#requests, ...this.#changes]) each.close();
    await this.#loops;
  }

  async round(number: number, names: readonly string[], plan: Random): Promise<Round> {
    const { holdMilliseconds } = this.#options;
    const begun: Begun[] = [];
    const whats: string[] = [];
    let hold = Math.floor(holdMilliseconds / 3) + plan.below(Math.ceil((holdMilliseconds * 2) / 3));
    for (const name of names) {
      const kind = faultKinds[name];
      if (kind === undefined) throw new Error(`there is no fault ${name}`);
      if (begun.length > 0) await wait(plan.below(mostGap));
      hold = Math.max(hold, kind.holdMilliseconds ?? 0);
      const random = new Random(plan.below(2 ** 32));
      const fault = begin(this.#history, name, name);
      const injected = await kind.inject(this.#deployment, random, this.#history).catch(this.#halfDone);
      whats.push(injected.what);
      begun.push(this.#began(fault, injected));
    }
    await wait(hold);
    // Some states are left only by another change: gateways must decide without one, too.
    this.#isPaused = plan.oneIn(3);
    for (const { isolation, end } of plan.oneIn(2) ? begun : begun.toReversed()) {
      isolation.ended = performance.now();
      // A process that ends while it starts is started again.
      await end().catch(() => undefined);
      await wait(plan.below(mostGap));
    }
    await this.#deployment.store.settled().catch(() => undefined);
    for (const { fault } of begun) fault.ended = performance.now();
    const recoveredAfter = await this.recovered(performance.now());
    await wait(quietMilliseconds);
    return this.#look(number, names, whats.join(', '), recoveredAfter);
  }

  /** Waits until every gateway has decided and each changer had a change in force since a moment, or it takes too long. */
  async recovered(since: number): Promise<number | null> {
    const { decideMilliseconds, inForceMilliseconds } = this.#options.limits;
    const decides = (): boolean => this.#requests.every(({ decidedAt }) => decidedAt > since);
    const haveDecided = await holdsBefore(since + decideMilliseconds + someMilliseconds, decides);
    this.#isPaused = false;
    const from = performance.now();
    const isInForce = (): boolean => this.#changes.every(({ inForceAt }) => inForceAt > since);
    const isWell = await holdsBefore(from + inForceMilliseconds + someMilliseconds, isInForce);
    return haveDecided && isWell ? performance.now() - since : null;
  }

  /** A fault that another one got in the way of: a server that is no master any more, or does not answer. */
  readonly #halfDone = (error: unknown): Injected => ({
    what: `half done: ${String(error)}`,
    end: async () => {
      for (const server of this.#deployment.store.data) await server.restart();
      for (const registry of this.#deployment.registries) await registry.start();
    },
  });

  /** Notes which gateways are cut off from now on, which ends before the cause of the fault is taken away. */
  #began(fault: Fault, { what, isolated = [], end }: Injected): Begun {
    const names = isolated.map(({ name }) => name);
    return { fault, isolation: begin(this.#history, fault.name, what, names), end };
  }

  #look(number: number, faults: readonly string[], what: string, recoveredAfter: number | null): Round {
    const { events } = this.#history;
    const { registries, gateways } = this.#deployment;
    const requests = this.#history.takeRequests();
    const recent = events.slice(this.#from);
    this.#from = events.length;
    const changes = recent.filter((event) => event.kind === 'change');
    // One that is not well may lack what it had to write to Redis.
    const isKept = recoveredAfter !== null && !faults.some((name) => losesData(name, this.#options.topology));
    if (!isKept) this.#storeKeptSince = performance.now();
    for (const event of recent) if (event.kind === 'restore' && isKept) event.storeKeptSince = this.#storeKeptSince;
    const found = check([...events, ...requests], this.#options.limits);
    const violations = found.violations.filter(({ rule, at }) => !this.#told.has(`${rule} ${at}`));
    for (const { rule, at } of violations) this.#told.add(`${rule} ${at}`);
    return {
      ...{ number, faults, what, recoveredAfter, violations },
      changes: changes.filter(({ writes }) => writes.length > 0).length,
      inForce: changes.filter(isInForce).length,
      requests: requests.length,
      afterInForce: found.afterInForce,
      toBeRefused: found.toBeRefused,
      events: violations.length === 0 ? [] : [...recent, ...requests],
      logs: violations.length === 0 ? [] : [...registries, ...gateways].map(({ name, log }) => ({ party: name, log })),
    };
  }
}

async function holdsBefore(deadline: number, holds: () => boolean): Promise<boolean> {
  while (!holds()) {
    if (performance.now() > deadline) return false;
    await wait(20);
  }
  return true;
}

function begin(history: History, name: string, what: string, isolated: readonly string[] = []): Fault {
  return history.add({ kind: 'fault', name, what, begun: performance.now(), ended: Infinity, isolated });
}
