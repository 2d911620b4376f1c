import { cpus, totalmem } from 'node:os';
import { say } from '../command-line.js';
import { subjects } from '../subjects/index.js';
import { measure, type Extent } from './measure.js';
import { notPinned, pinLoad } from './processes.js';
import type { Results } from './report.js';
import { scenarios } from './scenarios.js';
import { judge, targets } from './targets.js';

/** What to measure. */
export interface Wish extends Extent {
  /** Names of scenarios. */
  readonly scenarios: readonly string[];
  /** Names of subjects. */
  readonly subjects: readonly string[];
  /** Whether to measure only what the table of targets needs. */
  readonly targetsOnly: boolean;
}

/** Measures the subjects, reporting progress and omitted subjects on standard error. */
export async function run(wish: Wish): Promise<Results> {
  if (notPinned === null) pinLoad();
  else say(`Subjects have no CPU of their own: ${notPinned}.`);
  const { rounds, seconds, warmUpSeconds, connections } = wish;
  const extent = { rounds, seconds, warmUpSeconds, connections };
  const plan = scenarios
    .filter(({ name }) => wish.scenarios.includes(name))
    .map((scenario) => ({ scenario, names: scenario.subjects.filter((name) => isWanted(wish, scenario.name, name)) }));
  const leftOut = missingOf(plan.flatMap(({ names }) => names));
  const measured: Results['scenarios'][number][] = [];
  for (const { scenario, names } of plan) {
    const here = subjects.filter(({ name }) => names.includes(name) && !(name in leftOut));
    if (here.length > 0) measured.push({ name: scenario.name, measured: await measure(scenario, here, extent) });
  }
  const machine = {
    ...{ node: process.version, cpu: cpus()[0]?.model ?? '', cpus: cpus().length, date: new Date().toISOString() },
    ...{ gibibytes: Math.round(totalmem() / 2 ** 30), pinned: notPinned ?? 'yes' },
  };
  return {
    ...{ machine, extent, leftOut, scenarios: measured },
    targets: measured.flatMap(({ name, measured: measurements }) => judge(name, measurements)),
  };
}

function isWanted(wish: Wish, scenario: string, subject: string): boolean {
  const needed = targets
    .filter((target) => target.scenario === scenario)
    .flatMap((target) => [
      ...[target.subject, target.against],
      // For a bound on CPU time, also measure these two as the limit of what Node can do.
      ...(target.figure === 'cpu' ? ['dispatch', 'sockets'] : []),
    ]);
  const isNeeded = needed.includes(subject);
  return wish.subjects.includes(subject) && (isNeeded || !wish.targetsOnly);
}

/** The subjects that cannot run on this machine, each with the reason. */
function missingOf(names: readonly string[]): Record<string, string> {
  const missing: Record<string, string> = {};
  for (const subject of subjects.filter(({ name }) => names.includes(name))) {
    const reason = subject.missing();
    if (reason === null) continue;
    missing[subject.name] = reason;
    say(`left out: ${subject.name}: ${reason}`);
  }
  return missing;
}
