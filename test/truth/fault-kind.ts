import type { Random } from '../fuzz/random.js';
import type { Deployment, Party } from './deployment.js';
import type { History } from './recorder.js';
import type { Topology } from './stores.js';

/** An injected fault. */
export interface Injected {
  readonly what: string;
  /** The gateways that are now isolated from every Redis server. */
  readonly isolated?: readonly Party[];
  /** Removes the cause of the fault. */
  readonly end: () => Promise<unknown>;
}

/** A kind of fault. */
export interface FaultKind {
  readonly topologies?: readonly Topology[];
  /** Whether it needs registries on PostgreSQL. */
  readonly needsPostgres?: true;
  /** The topologies in which the fault may make Redis lose changes; true: all. */
  readonly losesData?: true | readonly Topology[];
  /** Minimum duration. */
  readonly holdMilliseconds?: number;
  readonly inject: (deployment: Deployment, random: Random, history: History) => Promise<Injected>;
}

/** The `end` of a fault whose cause is already gone. */
export const nothingToEnd = (): Promise<void> => Promise.resolve();

/** Picks one random choice, or all choices. */
export function someOf<T>(choices: readonly T[], random: Random): readonly T[] {
  if (choices.length === 0 || random.oneIn(3)) return choices;
  return [random.pick(choices)];
}

/** Picks one random choice; null without choices. */
export function pickFrom<T>(choices: readonly T[], random: Random): T | null {
  return choices.length === 0 ? null : random.pick(choices);
}

interface Named {
  readonly name: string;
}

/** The names, as text for a report. */
export function namesOf(these: readonly Named[]): string {
  return these.length === 0 ? 'nothing' : these.map(({ name }) => name).join(' and ');
}

/** The name of a server, as text for a report. */
export function nameOf(server: Named | null): string {
  return namesOf(server === null ? [] : [server]);
}
