// `npm run model`: searches the model for states that break a promise. The main promise: after a registry has reported
// a revocation as "in force", no gateway accepts the key.
import { Command } from 'commander';
import { follow, search } from './search.js';
import type { Result } from './search.js';
import { deepMutations, formerFaults, mutations, newIn, secondLocks, without, worldNames } from './worlds.js';
import type { Search } from './worlds.js';

const parts = {
  today: 'the protocol of the former release: each search must find its fault',
  new: 'the documented protocol: nothing may be found',
  mutations: 'the documented protocol less one mechanism: each must break a promise, the second locks must not',
};

const program = new Command('npm run model --')
  .description('Searches every state of small worlds for a broken promise of "in force". See test/model/README.md.')
  .argument(
    '<part>',
    Object.entries(parts)
      .map(([name, text]) => `${name}: ${text}`)
      .join('\n'),
  )
  .argument('[names...]', 'only searches whose name contains one of these')
  .option('-v, --verbose', 'print each counterexample, step by step')
  .option('--max-states <number>', 'end each search after so many states')
  .showHelpAfterError()
  .parse();

const [part = '', ...names] = program.args;
const { verbose = false, maxStates } = program.opts<{ verbose?: boolean; maxStates?: string }>();

/** Runs a search and prints one line. Returns the result; null if the search is not selected. */
function run({ name, mechanisms, setup, options }: Search, mustHold: boolean): Result | null {
  if (names.length > 0 && !names.some((wanted) => name.includes(wanted))) return null;
  const result = search(
    mechanisms,
    setup,
    maxStates === undefined ? options : { ...options, limit: Number(maxStates) },
  );
  const verdict = result.broken ?? (result.isPartial ? 'nothing found, not exhausted' : 'holds');
  const isExpected = (result.broken === null) === mustHold;
  const states = result.states.toLocaleString('en').padStart(12);
  print(
    `${name.padEnd(56)} ${states} states ${result.seconds.toFixed(1).padStart(7)} s  ${verdict}${isExpected ? '' : '  UNEXPECTED'}`,
  );
  if (verbose && result.broken !== null) {
    print(`    ${result.trace.join('\n    ')}`);
    print(`    ${JSON.stringify(result.last)}`);
  }
  if (!isExpected) process.exitCode = 1;
  return result;
}

function print(line: string): void {
  process.stdout.write(`${line}\n`);
}

if (part === 'today') for (const fault of formerFaults) run(fault, false);
else if (part === 'new') {
  const results = worldNames.map((name) => run(newIn(name), true)).filter((result) => result !== null);
  const states = results.reduce((sum, result) => sum + result.states, 0);
  print(`${results.length} worlds, ${states.toLocaleString('en')} states`);
} else if (part === 'mutations') {
  for (const mutation of mutations) run(without(mutation), false);
  for (const mutation of deepMutations) {
    const { name, mechanisms, setup } = without(mutation);
    const broken = follow(mechanisms, setup, mutation[2]);
    if (!/^I\d/.test(broken ?? '')) process.exitCode = 1;
    print(`${name.padEnd(56)} by given steps  ${broken ?? 'holds  UNEXPECTED'}`);
  }
  for (const mutation of secondLocks) run(without(mutation), true);
} else program.error(`error: unknown part '${part}'`);
