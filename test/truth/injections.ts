import { setTimeout as wait } from 'node:timers/promises';
import { Random } from '../fuzz/random.js';
import type { Deployment } from './deployment.js';
import type { FaultKind, Injected } from './fault-kind.js';
import { faultKinds } from './faults.js';
import type { Fault } from './history.js';
import type { History } from './recorder.js';

/** An injected fault, and its two events in the history: the fault, and the isolation of gateways that it causes. */
export interface Begun {
  readonly what: string;
  readonly fault: Fault;
  readonly isolation: Fault;
  readonly end: () => Promise<unknown>;
}

const mostGap = 700;

/** Starts and ends faults by a plan: the same random numbers give the same faults. */
export class Injections {
  readonly #deployment: Deployment;
  readonly #history: History;
  readonly #holdMilliseconds: number;
  readonly #onAllStarted: (plan: Random) => void;

  /**
   * @param holdMilliseconds maximum duration of a fault, unless its kind has a longer minimum
   * @param onAllStarted called once a round, after the last fault has started
   */
  constructor(
    deployment: Deployment,
    history: History,
    holdMilliseconds: number,
    onAllStarted: (plan: Random) => void,
  ) {
    this.#deployment = deployment;
    this.#history = history;
    this.#holdMilliseconds = holdMilliseconds;
    this.#onAllStarted = onAllStarted;
  }

  /** Starts all faults, then ends them in the same or the reverse order. */
  async atOnce(names: readonly string[], plan: Random): Promise<Begun[]> {
    const begun: Begun[] = [];
    let hold = this.#hold(plan);
    for (const name of names) {
      if (begun.length > 0) await wait(plan.below(mostGap));
      hold = Math.max(hold, kindOf(name).holdMilliseconds ?? 0);
      begun.push(await this.#inject(name, plan));
    }
    await wait(hold);
    this.#onAllStarted(plan);
    for (const one of plan.oneIn(2) ? begun : begun.toReversed()) {
      await end(one, begun);
      await wait(plan.below(mostGap));
    }
    return begun;
  }

  /** Starts each fault during or after the previous fault. */
  async oneAfterAnother(names: readonly string[], plan: Random): Promise<Begun[]> {
    const begun: Begun[] = [];
    const ends: Promise<void>[] = [];
    // Serializes the starts and ends of faults: no process may start while the database is being restored.
    let underWay: Promise<unknown> = Promise.resolve();
    const inTurn = <T>(act: () => Promise<T>): Promise<T> => {
      const acted = underWay.then(act);
      underWay = acted.catch(() => undefined);
      return acted;
    };
    for (const name of names) {
      const hold = Math.max(this.#hold(plan), kindOf(name).holdMilliseconds ?? 0);
      const one = await inTurn(() => this.#inject(name, plan));
      const ended = wait(hold).then(() => inTurn(() => end(one, begun)));
      const [overlaps, gap] = [plan.oneIn(2), plan.below(mostGap)];
      begun.push(one);
      ends.push(ended);
      await (overlaps ? wait(Math.floor(hold / 2)) : ended);
      await wait(gap);
    }
    this.#onAllStarted(plan);
    await Promise.all(ends);
    return begun;
  }

  #hold(plan: Random): number {
    const most = this.#holdMilliseconds;
    return Math.floor(most / 3) + plan.below(Math.ceil((most * 2) / 3));
  }

  async #inject(name: string, plan: Random): Promise<Begun> {
    const random = new Random(plan.below(2 ** 32));
    const fault = beginFault(this.#history, name, name);
    return this.#began(fault, await kindOf(name).inject(this.#deployment, random, this.#history).catch(this.#halfDone));
  }

  /** Stands for a fault whose injection failed because of another fault, e.g. because a server does not respond. */
  readonly #halfDone = (error: unknown): Injected => ({
    what: `half done: ${String(error)}`,
    end: async () => {
      for (const server of this.#deployment.store.data) await server.restart();
      for (const registry of this.#deployment.registries) await registry.start();
    },
  });

  /**
   * Records which gateways are isolated from now on. When the fault ends, the function `end` of this file records the
   * end of the isolation.
   */
  #began(fault: Fault, { what, isolated = [], end }: Injected): Begun {
    const names = isolated.map(({ name }) => name);
    return { what, fault, isolation: beginFault(this.#history, fault.name, what, names), end };
  }
}

/** Records the start of a fault, without an end yet. */
export function beginFault(history: History, name: string, what: string, isolated: readonly string[] = []): Fault {
  return history.add({ kind: 'fault', name, what, begun: performance.now(), ended: Infinity, isolated });
}

function kindOf(name: string): FaultKind {
  const kind = faultKinds[name];
  if (kind === undefined) throw new Error(`there is no fault ${name}`);
  return kind;
}

/**
 * Removes the cause of a fault. First records the end of all isolations, because the end of one fault may open a
 * network path that another fault has closed.
 * @param begun the faults of the round so far
 */
async function end({ end: takeAway }: Begun, begun: readonly Begun[]): Promise<void> {
  for (const { isolation } of begun) isolation.ended = Math.min(isolation.ended, performance.now());
  // Ignores that a process ends during its start: it is restarted anyway.
  await takeAway().catch(() => undefined);
}
