import { setTimeout as wait } from 'node:timers/promises';
import { Random } from '../fuzz/random.js';
import type { Deployment } from './deployment.js';
import type { FaultKind, Injected } from './fault-kind.js';
import { faultKinds } from './faults.js';
import type { Fault } from './history.js';
import type { History } from './recorder.js';

/** A fault that was begun, as the history has it. */
export interface Begun {
  readonly what: string;
  readonly fault: Fault;
  readonly isolation: Fault;
  readonly end: () => Promise<unknown>;
}

const mostGap = 700;

/** Begins and ends faults by a plan: the same random numbers give the same faults. */
export class Injections {
  readonly #deployment: Deployment;
  readonly #history: History;
  readonly #holdMilliseconds: number;
  readonly #onLastEnd: (plan: Random) => void;

  /**
   * @param holdMilliseconds how long a fault lasts, at most
   * @param onLastEnd called before the last faults end
   */
  constructor(deployment: Deployment, history: History, holdMilliseconds: number, onLastEnd: (plan: Random) => void) {
    this.#deployment = deployment;
    this.#history = history;
    this.#holdMilliseconds = holdMilliseconds;
    this.#onLastEnd = onLastEnd;
  }

  /** Begins faults, and ends them in some order. */
  async atOnce(names: readonly string[], plan: Random): Promise<Begun[]> {
    const begun: Begun[] = [];
    let hold = this.#hold(plan);
    for (const name of names) {
      if (begun.length > 0) await wait(plan.below(mostGap));
      hold = Math.max(hold, kindOf(name).holdMilliseconds ?? 0);
      begun.push(await this.#inject(name, plan));
    }
    await wait(hold);
    this.#onLastEnd(plan);
    for (const one of plan.oneIn(2) ? begun : begun.toReversed()) {
      await end(one, begun);
      await wait(plan.below(mostGap));
    }
    return begun;
  }

  /** Begins each fault after the end of the one before, or while that lasts. */
  async oneAfterAnother(names: readonly string[], plan: Random): Promise<Begun[]> {
    const begun: Begun[] = [];
    const ends: Promise<void>[] = [];
    // A process that is started must not meet a database that is just being put back.
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
    this.#onLastEnd(plan);
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
    return { what, fault, isolation: beginFault(this.#history, fault.name, what, names), end };
  }
}

/** Notes that a fault begins; it has no end yet. */
export function beginFault(history: History, name: string, what: string, isolated: readonly string[] = []): Fault {
  return history.add({ kind: 'fault', name, what, begun: performance.now(), ended: Infinity, isolated });
}

function kindOf(name: string): FaultKind {
  const kind = faultKinds[name];
  if (kind === undefined) throw new Error(`there is no fault ${name}`);
  return kind;
}

/** @param begun all that have begun: the end of one may open the way that another one has closed */
async function end({ end: takeAway }: Begun, begun: readonly Begun[]): Promise<void> {
  for (const { isolation } of begun) isolation.ended = Math.min(isolation.ended, performance.now());
  // A process that ends while it starts is started again.
  await takeAway().catch(() => undefined);
}
