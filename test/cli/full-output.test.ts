import { spawnSync } from 'node:child_process';
import { generateKeyPairSync } from 'node:crypto';
import { openSync, readdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import t from 'tap';
import { limitedCommand } from '../product-command.js';

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

t.test('a disk that takes only a part of the output causes the same error', (t) => {
  const file = `${t.testdir()}/output`;
  // The limit of the file size is one block. Without the trap, the signal at this limit would end the process.
  const limited = `trap '' XFSZ; ulimit -f 1; exec '${process.execPath}' dist/cli/main.js openapi > '${file}'`;
  const { status, stderr } = spawnSync('sh', ['-c', limited], { encoding: 'utf8' });
  t.equal(status, 1);
  t.match(stderr, /^Cannot write to standard output \(EFBIG\): output may be lost\./);
  t.end();
});

// Regression: on a full disk, `dev` left empty files for its secrets. Its next start took them for complete secrets,
// and either reported a damaged file or sent an empty token.
t.test('dev leaves no incomplete file on a full disk', (t) => {
  const directory = t.testdir();
  const [command, args] = limitedCommand(0, ['dev', '--data-dir', directory]);
  const { status, stderr } = spawnSync(command, args, { encoding: 'utf8' });
  t.equal(stderr, `The file ${path.join(directory, 'store-id')} cannot be written: EFBIG.\n`);
  t.equal(status, 1);
  t.same(readdirSync(directory), []);
  t.end();
});

t.test('dev leaves no incomplete token on a full disk', (t) => {
  const directory = t.testdir();
  const file = path.join(directory, 'token');
  const program = `
    const { ensureDemoAdministrators } = await import('./dist/cli/dev/demo-administrators.js');
    const created = { id: 'adm_1', token: 'a token' };
    const admin = { ask: async ({ method }) => ({ data: method === 'GET' ? [] : created }) };
    const file = process.argv[1];
    const files = { owner: file, support: file, member: file, treasurer: file, services: file };
    await ensureDemoAdministrators(admin, 'm_1', files).catch(({ message }) => console.log(message));`;
  const limited = 'ulimit -f 0; exec "$0" --input-type=module --eval "$1" "$2"';
  const { stdout, stderr } = spawnSync('bash', ['--norc', '-c', limited, process.execPath, program, file], {
    encoding: 'utf8',
    env: { PATH: process.env.PATH },
  });
  t.equal(stdout, `The file ${file} cannot be written: EFBIG.\n`, stderr);
  t.same(readdirSync(directory), []);
  t.end();
});

// Regression: a gateway or registry could not start on a full disk, because it wrote a new key beside the existing one
// before it read the existing one.
t.test('an existing signing key is read on a full disk', (t) => {
  const pem = generateKeyPairSync('ed25519').privateKey.export({ type: 'pkcs8', format: 'pem' });
  const file = path.join(t.testdir(), 'instance.pem');
  writeFileSync(file, pem, { mode: 0o600 });
  const program = `
    const { ensureSigner } = await import('./dist/cli/compose/note-signer.js');
    for (const keyFile of [process.argv[1], process.argv[1] + '.missing']) {
      const made = ensureSigner({ name: 'gw.example/a', keyFile }, 'The instance key');
      console.log(await made.then(({ isNew }) => isNew, ({ message }) => message));
    }`;
  const limited = 'ulimit -f 0; exec "$0" --input-type=module --eval "$1" "$2"';
  const { stdout, stderr } = spawnSync('bash', ['--norc', '-c', limited, process.execPath, program, file], {
    encoding: 'utf8',
    env: { PATH: process.env.PATH },
  });
  t.equal(stdout, `false\nThe instance key ${file}.missing cannot be created: EFBIG.\n`, stderr);
  t.same(readdirSync(path.dirname(file)), ['instance.pem']);
  t.end();
});
