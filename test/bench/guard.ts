import { readFileSync, writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { run } from './compare/run.js';
import { ratiosOf } from './compare/statistics.js';

// Compares the gateway's CPU time per request with that of plain Fastify and its proxy plugin in the same run, so that
// the ratio holds on any machine. A ratio above the committed limits ends the process with exit status 1.

const file = 'test/bench/guard.json';
/** Each limit written with `--update` is the measured ratio times this factor, to leave room for random variation. */
const margin = 1.1;

interface Limits {
  readonly against: string;
  /** The highest permitted ratio, by scenario. */
  readonly atMost: Readonly<Record<string, number>>;
}

const { values } = parseArgs({ options: { update: { type: 'boolean', default: false } } });
const limits = JSON.parse(readFileSync(file, 'utf8')) as Limits;
const { against } = limits;
const results = await run({
  ...{ scenarios: Object.keys(limits.atMost), subjects: ['gateway', against], targetsOnly: false },
  ...{ rounds: 5, seconds: 1, warmUpSeconds: 3, connections: 64 },
});
const ratios = results.scenarios.map(({ name, measured }) => {
  const cpuOf = (subject: string): number[] =>
    measured.find((one) => one.subject === subject)?.rounds.map(({ cpu }) => cpu) ?? [];
  return [name, ratiosOf(cpuOf('gateway'), cpuOf(against)).median] as const;
});
for (const [name, ratio] of ratios) {
  const atMost = limits.atMost[name] ?? 0;
  const holds = ratio <= atMost;
  process.stdout.write(`${name}: ${ratio.toFixed(2)} of ${against}, at most ${atMost}${holds ? '' : ': TOO MUCH'}\n`);
  if (!holds && !values.update) process.exitCode = 1;
}
if (ratios.length < Object.keys(limits.atMost).length) {
  process.stdout.write('not everything was measured\n');
  process.exitCode = 1;
} else if (values.update) {
  const atMost = Object.fromEntries(ratios.map(([name, ratio]) => [name, Math.ceil(ratio * margin * 100) / 100]));
  writeFileSync(file, `${JSON.stringify({ against, atMost }, null, 2)}\n`);
}
