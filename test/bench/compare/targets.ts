import type { Round } from './contender.js';
import type { Measured } from './measure.js';
import { ratiosOf, type Spread } from './statistics.js';

/** The figures that a target can bound, each as a function of a round. */
const metrics = {
  cpu: ({ cpu }: Round) => cpu,
  p99: ({ latency }: Round) => latency?.p99 ?? NaN,
  memory: ({ residentMegabytes }: Round) => residentMegabytes,
} as const;

/** An upper bound on a subject's figure in a scenario, relative to another subject or absolute. */
export interface Target {
  readonly scenario: string;
  readonly subject: string;
  /** The other subject; null: an absolute bound. */
  readonly against: string | null;
  readonly figure: keyof typeof metrics;
  readonly atMost: number;
  /** A more ambitious bound; null: none. */
  readonly stretch: number | null;
}

const ofAll = { subject: 'gateway', figure: 'cpu' } as const;

/** The targets of this gateway. */
export const targets: readonly Target[] = [
  { ...ofAll, scenario: 'get', against: 'stock-log', atMost: 0.7, stretch: 0.6 },
  { ...ofAll, scenario: 'get', against: 'fast-proxy', atMost: 1.05, stretch: 0.9 },
  { ...ofAll, scenario: 'get', against: 'nginx', atMost: 3, stretch: 2.2 },
  { ...ofAll, scenario: 'get', against: 'express-gateway', atMost: 0.22, stretch: 0.18 },
  { ...ofAll, scenario: 'get', subject: 'gateway-log-off', against: 'dispatch', atMost: 1.25, stretch: 1.1 },
  { ...ofAll, scenario: 'post', against: 'nginx', atMost: 3, stretch: 2.4 },
  { ...ofAll, scenario: 'bad-format', against: 'nginx', atMost: 1.8, stretch: 1.4 },
  { ...ofAll, scenario: 'unknown-key', against: 'nginx', atMost: 1.2, stretch: 1 },
  { ...ofAll, scenario: 'tls', against: 'nginx', atMost: 2.5, stretch: 2.1 },
  { ...ofAll, scenario: 'tls-resumed', against: 'nginx', atMost: 2.5, stretch: 1.5 },
  { ...ofAll, scenario: 'rate', figure: 'p99', against: 'stock-log', atMost: 1, stretch: null },
  { ...ofAll, scenario: 'get', figure: 'memory', against: null, atMost: 130, stretch: null },
  { ...ofAll, scenario: 'rate', figure: 'memory', against: null, atMost: 130, stretch: null },
  { scenario: 'keys', subject: 'gateway-million', figure: 'p99', against: 'gateway', atMost: 1.1, stretch: null },
  { scenario: 'keys', subject: 'gateway-million', figure: 'memory', against: 'gateway', atMost: 1.1, stretch: null },
  { scenario: 'changes', subject: 'gateway-changes', figure: 'p99', against: 'gateway', atMost: 1.1, stretch: null },
];

/** A target with its measured ratios (for an absolute bound: the figures themselves) and the verdict. */
export interface Judged extends Target {
  readonly measured: Spread;
  readonly holds: boolean;
}

/** Judges the targets of one scenario. Targets with an omitted subject are not judged. */
export function judge(scenario: string, measured: readonly Measured[]): Judged[] {
  return targets
    .filter((target) => target.scenario === scenario)
    .flatMap((target) => {
      const metricOf = metrics[target.figure];
      const of = (name: string | null): number[] | undefined =>
        measured.find(({ subject }) => subject === name)?.rounds.map(metricOf);
      const ones = of(target.subject);
      const others = target.against === null ? ones?.map(() => 1) : of(target.against);
      if (ones === undefined || others === undefined) return [];
      const ratios = ratiosOf(ones, others);
      // For an absolute bound every round must stay within the bound; for a relative bound the median counts.
      const counts = target.against === null ? ratios.max : ratios.median;
      return [{ ...target, measured: ratios, holds: counts <= target.atMost }];
    });
}
