import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cp, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { numberIn, optionsOf, say } from '../bench/command-line.js';
import { mutations, type Mutation } from './mutations.js';

// Whether the search of histories finds what it is for: faults are planted in copies of the built product, one at a time.

const options = optionsOf({ seconds: '90', seed: '1', only: '' });
const seconds = String(numberIn('seconds', options.seconds));
const seed = String(numberIn('seed', options.seed));
const chosen = mutations.filter(({ what }) => what.includes(options.only));

const results: { readonly what: string; readonly isFound: boolean; readonly seconds: number }[] = [];
for (const mutation of chosen) {
  const directory = await mkdtemp(path.join(tmpdir(), 'merchant-gateway-mutant-'));
  try {
    const begun = performance.now();
    const isFound = await isFoundIn(directory, mutation);
    const took = Math.round((performance.now() - begun) / 1000);
    results.push({ what: mutation.what, isFound, seconds: took });
    say(`${isFound ? 'found' : 'NOT FOUND'} within ${took} s: ${mutation.what}`);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}
const missed = results.filter(({ isFound }) => !isFound);
if (options.json) process.stdout.write(`${JSON.stringify({ seed, results })}\n`);
else
  process.stdout.write(`${results.length - missed.length} of ${results.length} planted faults found, seed ${seed}\n`);
if (missed.length > 0) process.exitCode = 1;

async function isFoundIn(directory: string, { what, file, from, to, options }: Mutation): Promise<boolean> {
  const dist = path.join(directory, 'dist');
  await cp('dist', dist, { recursive: true });
  await cp('package.json', path.join(directory, 'package.json'));
  await symlink(path.resolve('node_modules'), path.join(directory, 'node_modules'));
  const changed = path.join(dist, file);
  const parts = (await readFile(changed, 'utf8')).split(from);
  if (parts.length !== 2) throw new Error(`${file} has "${from}" ${parts.length - 1} times, not once: ${what}`);
  await writeFile(changed, parts.join(to));
  const soak = path.join(import.meta.dirname, 'soak.js');
  const args = [soak, '--dist', dist, '--stop', '--seconds', seconds, '--seed', seed, ...options];
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'ignore', 'inherit'] });
  const [status] = (await once(child, 'exit')) as [number | null];
  if (status !== 0 && status !== 1) throw new Error(`the run ended with ${String(status)}: ${what}`);
  return status === 1;
}
