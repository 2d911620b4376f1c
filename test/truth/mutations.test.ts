import { readFile } from 'node:fs/promises';
import path from 'node:path';
import t from 'tap';
import { mutations } from './mutations.js';

// Without this test, a mutation whose code no longer exists would be noticed only when `mutants.ts` applies it.
t.test('each mutation matches exactly one place of the build', async (t) => {
  for (const { what, file, from, to } of mutations) {
    const source = await readFile(path.resolve('dist', file), 'utf8');
    t.equal(source.split(from).length - 1, 1, what);
    t.not(from, to, what);
  }
});
