import { spawnSync } from 'node:child_process';
import { openSync, readFileSync } from 'node:fs';
import path from 'node:path';
import t from 'tap';
import { productCommand } from '../product-command.js';

/** Has V8 tell its flags, as they stand at the end of a command. */
const preload = `data:text/javascript,${encodeURIComponent(`
  import { setFlagsFromString } from 'node:v8';
  process.on('exit', () => setFlagsFromString('--help'));
`)}`;

const directory = t.testdir();

function flagsOf(command: string): string {
  const file = path.join(directory, command);
  const line = productCommand([command, '--config', '/nowhere.yaml'], ['--import', preload]);
  // Not a pipe: V8 does not wait until there is room in one.
  spawnSync(...line, { stdio: ['ignore', openSync(file, 'w'), 'ignore'] });
  return readFileSync(file, 'utf8');
}

t.test('a gateway bounds old garbage, and keeps its code in a quiet time', (t) => {
  const told = flagsOf('gateway');
  // Where a later V8 does not know a flag, it has to be found out what stands for it.
  t.match(told, /--heap-growing-percent=30\n/);
  t.match(told, /--gc-memory-reducer-start-delay-ms=2147483647\n/);
  const others = flagsOf('services');
  t.match(others, /--heap-growing-percent=0\n/, 'other commands have what Node has');
  t.match(others, /--gc-memory-reducer-start-delay-ms=8000\n/);
  t.end();
});
