import { readFile } from 'node:fs/promises';
import path from 'node:path';
import t from 'tap';
import { mutations } from './mutations.js';

// A fault whose place is gone would be noticed only by the long run that plants it.
t.test('each fault has its one place in the built product', async (t) => {
  for (const { what, file, from, to } of mutations) {
    const source = await readFile(path.resolve('dist', file), 'utf8');
    t.equal(source.split(from).length - 1, 1, what);
    t.not(from, to, what);
  }
});
