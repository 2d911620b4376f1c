import { spawnSync } from 'node:child_process';
import { openSync } from 'node:fs';
import t from 'tap';

t.test(
  'a full output device causes a one-sentence error and a failure status',
  { skip: process.platform !== 'linux' },
  (t) => {
    for (const args of [['config', 'defaults'], ['openapi'], ['--version']]) {
      const full = openSync('/dev/full', 'w');
      const { status, stderr } = spawnSync(process.execPath, ['dist/cli/main.js', ...args], {
        stdio: ['ignore', full, 'pipe'],
        encoding: 'utf8',
      });
      t.equal(status, 1, args.join(' '));
      t.equal(
        stderr,
        'Cannot write to standard output (ENOSPC): output may be lost. ' +
          'If a created key was not shown, reset or revoke it.\n',
      );
    }
    t.end();
  },
);
