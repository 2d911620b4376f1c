import { numberIn, optionsOf, say } from './command-line.js';
import { distributionOf, round } from './distribution.js';
import { evaluate, type Evaluation } from './unusual/evaluation.js';
import { misuseClasses } from './unusual/misuse.js';

// Plants misuse in simulated traffic of merchants. Counts how much of it the detectors report, and their false reports.

const options = optionsOf({ seed: '1', runs: '1', merchants: '2000', weeks: '8', planted: '40' });
const first = numberIn('seed', options.seed);
const scenario = {
  merchants: numberIn('merchants', options.merchants),
  weeks: numberIn('weeks', options.weeks),
  planted: numberIn('planted', options.planted),
  thresholds: {
    ...{ off: [], learnDays: 7, surgeLearnDays: 35, idleDays: 30, surgeFactor: 10, surgeRequests: 200 },
    ...{ newAddresses: 20, refusals: 30 },
  },
};
for (let seed = first; seed < first + numberIn('runs', options.runs); seed += 1) {
  const began = performance.now();
  const result = evaluate({ ...scenario, seed });
  say(`seed ${seed}: ${Math.round((performance.now() - began) / 1_000)} s`);
  process.stdout.write(`${options.json ? JSON.stringify({ seed, ...result }) : textOf(seed, result)}\n`);
}

function textOf(seed: number, { keys, keyWeeks, requests, classes, falseReports }: Evaluation): string {
  const all = Object.values(falseReports).reduce((sum, one) => sum + one, 0);
  const rules = Object.entries(falseReports).map(([rule, count]) => `${rule} ${count}`);
  return [
    `seed ${seed}: ${keys} keys, ${Math.round(keyWeeks)} key-weeks, ${requests} accepted requests`,
    ...misuseClasses.map((of) => {
      const { planted, found, byOwnRule, seconds } = classes[of];
      const { p50, max } = distributionOf(seconds);
      return `  ${of}: ${found} of ${planted} within 60 s (${byOwnRule} by its own rule); p50 ${p50} s, max ${max} s`;
    }),
    `  false reports per 1,000 key-weeks: ${round((all * 1_000) / keyWeeks)} (${rules.join(', ') || 'none'})`,
  ].join('\n');
}
