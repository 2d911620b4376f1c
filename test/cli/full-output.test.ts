import { spawnSync } from 'node:child_process';
import { openSync } from 'node:fs';
import t from 'tap';

t.test('an output that is full is a sentence, and fails', { skip: process.platform !== 'linux' }, (t) => {
  for (const args of [['config', 'defaults'], ['openapi'], ['--version']]) {
    const full = openSync('/dev/full', 'w');
    const { status, stderr } = spawnSync(process.execPath, ['dist/cli/main.js', ...args], {
      stdio: ['ignore', full, 'pipe'],
      encoding: 'utf8',
    });
    t.equal(status, 1, args.join(' '));
    t.equal(
      stderr,
      'Standard output cannot be written (ENOSPC): what was printed may be lost. ' +
        'A key that was made and that nobody has seen is to be reset or revoked.\n',
    );
  }
  t.end();
});
