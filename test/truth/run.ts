import { setTimeout as wait } from 'node:timers/promises';
import { Random } from '../fuzz/random.js';
import type { Teardown } from '../adapters/redis-server.js';
import { Changes } from './changes.js';
import { check, type Limits, type Violation } from './checker.js';
import { startDeployment, type Deployment, type DeploymentOptions } from './deployment.js';
import { FaultPlan } from './fault-plan.js';
import { losesData } from './faults.js';
import { isInForce, type Asked, type HistoryEvent } from './history.js';
import { importKeys } from './imported-keys.js';
import { beginFault, Injections } from './injections.js';
import { Keys } from './keys.js';
import { History } from './recorder.js';
import { Requests } from './requests.js';

/** The options of a run. */
export interface RunOptions extends DeploymentOptions {
  readonly seed: number;
  readonly seconds: number;
  /** The run ends after this many changes. */
  readonly changes: number;
  /** Names of faults; each must be possible with this deployment. */
  readonly faults: readonly string[];
  /** The run ends once the rounds of every fault have had this many changes; null: no such condition. */
  readonly each?: number | null;
  /** The faults of the first rounds, instead of random ones. */
  readonly rounds?: readonly (readonly string[])[];
  /** Number of consecutive faults in a round; null: one fault, or two concurrent faults. */
  readonly sequence: number | null;
  /** Number of keys in addition to the changing keys. */
  readonly keys: number;
  /** Number of clients per gateway. */
  readonly callers: number;
  /** The pause of a client between two requests. */
  readonly pauseMilliseconds: number;
  /** Maximum duration of a fault, unless its kind has a longer minimum. */
  readonly holdMilliseconds: number;
  /** Number of clients that make changes. */
  readonly changers: number;
  readonly limits: Limits;
  /** Called after each round with its results. */
  readonly onRound: (round: Round) => void;
  /** Ends the run after the current round. */
  readonly signal?: AbortSignal;
}

/** One or several faults, until the deployment has recovered. */
export interface Round {
  readonly number: number;
  readonly faults: readonly string[];
  readonly what: string;
  readonly changes: number;
  readonly inForce: number;
  readonly requests: number;
  /** Number of requests that began after a change to their key or merchant was in force. */
  readonly afterInForce: number;
  /** Number of the requests in `afterInForce` that must be rejected. */
  readonly toBeRefused: number;
  readonly violations: readonly Violation[];
  /**
   * Milliseconds from the end of the last fault to the start of the last undecided request; null: some gateway did not
   * decide in time.
   */
  readonly decidedAfter: number | null;
  /**
   * Milliseconds from the end of the last fault until every gateway decided and a change was in force; null: too late.
   */
  readonly recoveredAfter: number | null;
  /** All events of the round, if there is a violation. */
  readonly events: readonly HistoryEvent[];
  /** The end of each process's log, if there is a violation. */
  readonly logs: readonly { readonly party: string; readonly log: string }[];
}

const quietMilliseconds = 300;
/** Extra waiting time beyond the limits, so that a late request or change can be seen. */
const someMilliseconds = 5000;

/** Starts a deployment and runs rounds until a condition in `options` ends the run. Returns the rounds. */
export async function run(t: Teardown, options: RunOptions): Promise<Round[]> {
  const history = new History();
  const starting = beginFault(history, 'start', 'the start');
  const deployment = await startDeployment(t, history, options);
  const soak = new Soak(deployment, history, options);
  t.teardown(() => soak.stop());
  await soak.begin();
  await soak.recovered(performance.now());
  starting.ended = performance.now();
  const random = new Random(options.seed);
  const { faults, each = null, sequence, rounds: given = [] } = options;
  const plan = new FaultPlan(random, { faults, each, sequence, given });
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

class Soak {
  readonly #deployment: Deployment;
  readonly #history: History;
  readonly #options: RunOptions;
  readonly #requests: readonly Requests[];
  readonly #changes: readonly Changes[];
  readonly #keys = new Keys();
  readonly #injections: Injections;
  #isRunning = true;
  #isPaused = false;
  #loops: Promise<unknown> = Promise.resolve();
  /** The violations reported so far. */
  readonly #reported = new Set<string>();
  /** Index of the current round's first event. */
  #from = 0;
  /** Since when Redis has lost nothing. */
  #storeKeptSince = -Infinity;

  constructor(deployment: Deployment, history: History, options: RunOptions) {
    this.#deployment = deployment;
    this.#history = history;
    this.#options = options;
    this.#injections = new Injections(deployment, history, options.holdMilliseconds, (plan) => {
      // Pauses the changes in some rounds: a gateway must decide again without the help of a later change.
      this.#isPaused = plan.oneIn(3);
    });
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
    if (this.#options.keys > 0) {
      this.#keys.addOthers(await importKeys(this.#deployment, this.#history, this.#options.keys));
    }
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
    const injections = this.#injections;
    const isSequence = this.#options.sequence !== null;
    const begun = await (isSequence ? injections.oneAfterAnother(names, plan) : injections.atOnce(names, plan));
    await this.#deployment.store.settled().catch(() => undefined);
    const since = performance.now();
    for (const { fault } of begun) fault.ended = since;
    const recoveredAfter = await this.recovered(since);
    await wait(quietMilliseconds);
    const what = begun.map((one) => one.what).join(', ');
    return this.#evaluate({ number, faults: names, what, recoveredAfter }, since);
  }

  /**
   * Waits until every gateway has decided a request sent after `since`, and every changer has a later change in force.
   * @returns the time from `since` in milliseconds; null: too late
   */
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

  #decidedAfter(requests: readonly Asked[], since: number): number | null {
    const last = requests.filter(isUndecided).reduce((latest, { sent }) => Math.max(latest, sent - since), 0);
    const haveDecided = this.#requests.every(({ decidedAt }) => decidedAt > since);
    return haveDecided && last <= this.#options.limits.decideMilliseconds ? last : null;
  }

  #evaluate(round: Pick<Round, 'number' | 'faults' | 'what' | 'recoveredAfter'>, since: number): Round {
    const { faults, recoveredAfter } = round;
    const { events } = this.#history;
    const { registries, gateways } = this.#deployment;
    const requests = this.#history.takeRequests();
    const recent = events.slice(this.#from);
    this.#from = events.length;
    const changes = recent.filter((event) => event.kind === 'change');
    // If the deployment has not recovered, Redis may lack some changes.
    const isKept = recoveredAfter !== null && !faults.some((name) => losesData(name, this.#options.topology));
    if (!isKept) this.#storeKeptSince = performance.now();
    for (const event of recent) if (event.kind === 'restore' && isKept) event.storeKeptSince = this.#storeKeptSince;
    const found = check([...events, ...requests], this.#options.limits);
    const violations = found.violations.filter(({ rule, at }) => !this.#reported.has(`${rule} ${at}`));
    for (const { rule, at } of violations) this.#reported.add(`${rule} ${at}`);
    return {
      ...{ ...round, violations, decidedAfter: this.#decidedAfter(requests, since) },
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

function isUndecided({ verdict }: Asked): boolean {
  return verdict === 'unavailable' || verdict === 'broken';
}

async function holdsBefore(deadline: number, holds: () => boolean): Promise<boolean> {
  while (!holds()) {
    if (performance.now() > deadline) return false;
    await wait(20);
  }
  return true;
}
