import { execFile, spawnSync } from 'node:child_process';
import { mkdtemp, readFile, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import type { Test } from 'tap';

/** The commit of the former release, from which users upgrade; each release names its predecessor here. */
const formerRelease = '33b20c0c93826cfc7590c4e0b8bafce957971307';

/** The reason why the former release is not available for tests; false if it is. */
export const withoutFormerRelease =
  spawnSync('git', ['cat-file', '-e', `${formerRelease}^{commit}`]).status === 0
    ? false
    : `the history has no ${formerRelease}, a shallow clone perhaps: NO UPGRADE IS TESTED`;

const run = promisify(execFile);

/** Builds the former release in a folder that is removed after the test. */
export async function buildFormerRelease(t: Test): Promise<string> {
  const root = await mkdtemp(path.join(tmpdir(), 'merchant-gateway-former-'));
  t.teardown(() => rm(root, { recursive: true, force: true }));
  await run('sh', ['-c', 'git archive "$1" | tar -x -C "$2"', 'sh', formerRelease, root]);
  const [own, former] = await Promise.all(['.', root].map((folder) => lockedPackages(folder)));
  if (own === former) await symlink(path.resolve('node_modules'), path.join(root, 'node_modules'));
  else await run('npm', ['ci', '--omit=dev', '--no-audit', '--no-fund'], { cwd: root });
  // Its tests and their tools are not needed: installing them took most of the time. The bundler is the one of this release.
  const tools = `${path.resolve('node_modules/.bin')}${path.delimiter}${process.env.PATH ?? ''}`;
  await run('npm', ['run', '--silent', 'build'], { cwd: root, env: { ...process.env, PATH: tools } });
  return root;
}

/** The locked dependencies, without the package's own metadata. */
async function lockedPackages(folder: string): Promise<string> {
  const { packages } = JSON.parse(await readFile(path.join(folder, 'package-lock.json'), 'utf8')) as {
    readonly packages: Record<string, object>;
  };
  return JSON.stringify({ ...packages, '': null });
}
