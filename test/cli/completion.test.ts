import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import t, { type Test } from 'tap';
import { ran } from './ran.js';

async function scriptFor(shell: string): Promise<string> {
  const { status, out, err } = await ran('completion', shell);
  if (status !== 0 || err !== '') throw new Error(`completion ${shell}: ${status} ${err}`);
  return out;
}

/** Creates a directory with the completion script and files, one with a space in its name. Returns the path. */
async function place(t: Test, shell: string): Promise<string> {
  const files = { 'gateway.yaml': '', 'gateway copy.yaml': '', 'geo.mmdb': '', data: { 'inner.yaml': '' } };
  return t.testdir({ ...files, script: await scriptFor(shell) });
}

/** The candidates for the last word of each line, with the cursor at the end of the line. */
const expected: readonly (readonly [words: string[], offered: string[]])[] = [
  [['me'], ['members', 'merchants']],
  [['co'], ['codes', 'completion', 'config', 'console']],
  [
    ['keys', ''],
    ['create', 'export', 'fingerprint', 'import', 'list', 'reset', 'revoke', 'show'],
  ],
  [
    ['keys', 're'],
    ['reset', 'revoke'],
  ],
  [['keys', 'create', '--env'], ['--environment']],
  [
    ['keys', 'create', '--environment', ''],
    ['live', 'test'],
  ],
  [['keys', 'create', '--environment', 'l'], ['live']],
  [['keys', 'create', '--merchant', 'm_1', '--environment', 't'], ['test']],
  [['keys', 'create', '--label', 'list', '--environment', 't'], ['test']],
  [['keys', 'create', '--merchant', ''], []],
  [['keys', 'revoke', ''], []],
  [
    ['merchants', 'set', 'm_1', '--any'],
    ['--any-ip', '--any-origin'],
  ],
  [
    ['database', 'migrate', ''],
    ['registry', 'services'],
  ],
  [['database', 'migrate', 'registry', ''], []],
  [
    ['config', 'check', '--for', ''],
    ['gateway', 'registry', 'services'],
  ],
  [
    ['completion', ''],
    ['bash', 'zsh'],
  ],
  [['tor-exits', 'st'], ['status']],
  [['events', 'list', '--key'], ['--key-id']],
  [['gateway', '--config', 'gateway c'], ['gateway copy.yaml']],
  [
    ['gateway', '--config', 'ga'],
    ['gateway copy.yaml', 'gateway.yaml'],
  ],
  [['merchants', 'list', '--token-file', 'geo'], ['geo.mmdb']],
  [['keys', 'import', 'ge'], ['geo.mmdb']],
  [['audit', 'search', 'gateway.yaml', 'ge'], ['geo.mmdb']],
  [['audit', 'search', 'data/i'], ['data/inner.yaml']],
  [['dev', '--data-dir', ''], ['data']],
  [['nonsense', ''], []],
];

const bashDriver = `
set -u
source ./script
unset COMP_LINE
COMP_WORDS=(merchant-gateway "$@")
COMP_CWORD=$#
_merchant_gateway
printf '%s\\n' "\${COMPREPLY[@]+"\${COMPREPLY[@]}"}"
`;

t.test('bash completes commands, options, choices and files', async (t) => {
  const cwd = await place(t, 'bash');
  t.equal(spawnSync('bash', ['-n', 'script'], { cwd }).status, 0, 'the script is valid bash');
  const complete = (words: readonly string[]): string[] => {
    const args = ['--norc', '--noprofile', '-c', bashDriver, 'bash', ...words];
    const { stdout, stderr, status } = spawnSync('bash', args, { cwd, encoding: 'utf8' });
    t.same({ stderr, status }, { stderr: '', status: 0 }, words.join(' '));
    return stdout.split('\n').filter((line) => line !== '').toSorted(); // prettier-ignore
  };
  for (const [words, offered] of expected) t.same(complete(words), offered, words.join(' '));
  for (const words of [['--'], ['keys', 'create', '--'], ['dev', '-']]) {
    t.ok(complete(words).includes('--help'), words.join(' '));
  }
  t.same(complete(['keys', 'create', '--environment', '=']), ['live', 'test'], 'bash splits --environment= into words');
  t.same(complete(['keys', 'create', '--environment', '=', 'te']), ['test']);
  t.notOk(complete(['merchants', 'list', '--']).includes('--token'), 'options hidden from help are not offered');
});

t.test('an interactive bash completes with the Tab key', async (t) => {
  const cwd = await place(t, 'bash');
  writeFileSync(`${cwd}/merchant-gateway`, '#!/bin/sh\nprintf "<%s>" "$@" > typed\n', { mode: 0o755 });
  // A unique match is inserted with a trailing space; spaces in file names are escaped.
  const typed = 'PATH=$PWD:$PATH; source ./script\nmerchant-gateway confi\tch\t--conf\tgateway\\ c\t\nexit\n';
  const { status, error } = spawnSync('script', ['-qec', 'bash --norc --noprofile -i', '/dev/null'], {
    ...{ cwd, input: typed, encoding: 'utf8', timeout: 60_000 },
  });
  t.same({ status, error }, { status: 0, error: undefined });
  const { stdout } = spawnSync('cat', ['typed'], { cwd, encoding: 'utf8' });
  t.equal(stdout, '<config><check><--config><gateway copy.yaml>');
});

/** Types each line into a separate zsh on a pseudo-terminal, presses Tab, and prints the candidates. */
const zshDriver = `
zmodload zsh/zpty
print -r -- 'PS1=; autoload -U compinit; compinit -u -D
source ./script
# Each match as it would be written out, in place of being shown.
compadd() {
  local -a hits
  builtin compadd -O hits "$@"
  (( $#hits )) && print -rl -- $hits >> offered
  builtin compadd "$@"
}
finished() { : > finished }
shown() { comppostfuncs=(finished); zle complete-word }
zle -N shown
bindkey "^I" shown
: > ready' > startup
zpty shell 'TERM=dumb ZDOTDIR=/nowhere zsh -f -i'
zpty -w shell 'source ./startup'
until [[ -e ready ]]; do sleep 0.02; done
for line in "\${(@f)$(<lines)}"; do
  rm -f offered finished
  zpty -w -n shell "$line"$'\t'
  until [[ -e finished ]]; do sleep 0.02; zpty -r -t shell seen; done
  print -r -- "\${(j:|:)\${(@ou)\${(@f)$(cat offered 2>/dev/null)}}}"
  zpty -w -n shell $'\x15'
done
zpty -d shell
`;

t.test('zsh completes commands, options, choices and files', async (t) => {
  const cwd = await place(t, 'zsh');
  t.equal(spawnSync('zsh', ['-n', 'script'], { cwd }).status, 0, 'the script is valid zsh');
  const cases = expected.filter(([words]) => words[0] !== 'nonsense');
  const lines = cases.map(([words]) =>
    ['merchant-gateway', ...words.map((word) => word.replaceAll(' ', '\\ '))].join(' '),
  );
  writeFileSync(`${cwd}/lines`, lines.join('\n'));
  const { stdout, stderr, error } = spawnSync('zsh', ['-f', '-c', zshDriver], {
    cwd,
    encoding: 'utf8',
    timeout: 120_000,
  });
  t.same({ stderr, error }, { stderr: '', error: undefined });
  const offered = stdout.split('\n');
  for (const [index, [words, wanted]] of cases.entries()) {
    // zsh lists a name with a space twice, raw and escaped, and path components separately.
    const names = (offered[index] ?? '').replaceAll('\\ ', ' ').split('|').filter((one) => one !== ''); // prettier-ignore
    const found = new Set(names);
    // If there is no candidate, zsh lists the options of the command instead, which all begin with `-`.
    if (wanted.length === 0) t.notMatch([...found].join(' '), /(?:^| )[^-]/, words.join(' '));
    else t.same(found, new Set(wanted.flatMap((one) => one.split('/'))), words.join(' '));
  }
});
