import type { Random } from '../fuzz/random.js';
import type { Deployment, Party } from './deployment.js';
import type { History } from './recorder.js';
import type { Topology } from './stores.js';

/** A fault that was begun. */
export interface Injected {
  readonly what: string;
  /** The gateways that are now cut off from every Redis server. */
  readonly isolated?: readonly Party[];
  /** Takes its cause away. */
  readonly end: () => Promise<unknown>;
}

/** A kind of fault. */
export interface FaultKind {
  readonly topologies?: readonly Topology[];
  /** Whether it needs registries on a database server. */
  readonly needsPostgres?: true;
  /** Whether Redis may lose changes; or with which topologies it may. */
  readonly losesData?: true | readonly Topology[];
  /** How long it lasts at least. */
  readonly holdMilliseconds?: number;
  readonly inject: (deployment: Deployment, random: Random, history: History) => Promise<Injected>;
}

/** For a fault whose cause is gone as soon as it has begun. */
export const nothingToEnd = (): Promise<void> => Promise.resolve();

/** One of them, or all. */
export function someOf<T>(choices: readonly T[], random: Random): readonly T[] {
  if (choices.length === 0 || random.oneIn(3)) return choices;
  return [random.pick(choices)];
}

/** One of them; null where there is none. */
export function pickFrom<T>(choices: readonly T[], random: Random): T | null {
  return choices.length === 0 ? null : random.pick(choices);
}

interface Named {
  readonly name: string;
}

/** Their names, for a report. */
export function namesOf(these: readonly Named[]): string {
  return these.length === 0 ? 'nothing' : these.map(({ name }) => name).join(' and ');
}

/** The name of a server, for a report. */
export function nameOf(server: Named | null): string {
  return namesOf(server === null ? [] : [server]);
}
