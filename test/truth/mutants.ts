import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cp, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { numberIn, optionsOf, say } from '../bench/command-line.js';
import { mutations, type Mutation } from './mutations.js';

// Mutation test of the history search: plants one fault at a time in copies of the built product and checks that the
// search finds it. As a control, the unchanged product runs first, with the same options. If the search finds something
// there too, its finding in a copy proves nothing.

const options = optionsOf({ seconds: '90', seed: '1', only: '', runs: 'both', 'control-seconds': '30' });
const seconds = String(numberIn('seconds', options.seconds));
const controlSeconds = String(numberIn('control-seconds', options['control-seconds']));
const seed = String(numberIn('seed', options.seed));
if (!['both', 'control', 'mutants'].includes(options.runs)) {
  process.stderr.write('--runs is both, control or mutants\n');
  process.exit(2);
}
const chosen = mutations.filter(({ what }) => what.includes(options.only));

interface Result {
  readonly what: string;
  readonly isFound: boolean;
  readonly seconds: number;
}

const control: Result[] = [];
if (options.runs !== 'mutants') {
  // Mutations with the same options share one control run.
  const searches = new Map(chosen.map((mutation) => [mutation.options.join(' '), mutation.options]));
  for (const [what, search] of searches) {
    const result = await timed(what, () => soak('dist', controlSeconds, search));
    control.push(result);
    say(`${result.isFound ? 'FOUND' : 'nothing found'} within ${result.seconds} s in the product as it is: ${what}`);
  }
}
const results: Result[] = [];
for (const mutation of options.runs === 'control' ? [] : chosen) {
  const directory = await mkdtemp(path.join(tmpdir(), 'merchant-gateway-mutant-'));
  try {
    const result = await timed(mutation.what, () => isFoundIn(directory, mutation));
    results.push(result);
    say(`${result.isFound ? 'found' : 'NOT FOUND'} within ${result.seconds} s: ${mutation.what}`);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}
const missed = results.filter(({ isFound }) => !isFound);
const untrue = control.filter(({ isFound }) => isFound);
if (options.json) process.stdout.write(`${JSON.stringify({ seed, control, results })}\n`);
else {
  const found = `${results.length - missed.length} of ${results.length} planted faults found`;
  const without = `something found in ${untrue.length} of ${control.length} runs without one`;
  process.stdout.write(`${found}, ${without}, seed ${seed}\n`);
}
if (missed.length + untrue.length > 0) process.exitCode = 1;

async function timed(what: string, act: () => Promise<boolean>): Promise<Result> {
  const begun = performance.now();
  const isFound = await act();
  return { what, isFound, seconds: Math.round((performance.now() - begun) / 1000) };
}

async function isFoundIn(directory: string, { what, file, from, to, options: search }: Mutation): Promise<boolean> {
  const dist = path.join(directory, 'dist');
  await cp('dist', dist, { recursive: true });
  await cp('package.json', path.join(directory, 'package.json'));
  await symlink(path.resolve('node_modules'), path.join(directory, 'node_modules'));
  const changed = path.join(dist, file);
  const parts = (await readFile(changed, 'utf8')).split(from);
  if (parts.length !== 2) throw new Error(`${file} has "${from}" ${parts.length - 1} times, not once: ${what}`);
  await writeFile(changed, parts.join(to));
  return soak(dist, seconds, search);
}

/** Runs the search on the build in `dist`, for at most `longest` seconds. @returns whether it found a violation */
async function soak(dist: string, longest: string, search: readonly string[]): Promise<boolean> {
  const program = path.join(import.meta.dirname, 'soak.js');
  const args = [program, '--dist', dist, '--stop', '--seconds', longest, '--seed', seed, ...search];
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'ignore', 'inherit'] });
  const [status] = (await once(child, 'exit')) as [number | null];
  if (status !== 0 && status !== 1) throw new Error(`the run ended with ${String(status)}: ${search.join(' ')}`);
  return status === 1;
}
