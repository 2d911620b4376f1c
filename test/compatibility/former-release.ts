import { execFile, spawnSync } from 'node:child_process';
import { mkdtemp, readFile, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import type { Test } from 'tap';

/** The release that is upgraded from: each release names its predecessor. */
const formerRelease = '33b20c0c93826cfc7590c4e0b8bafce957971307';

/** Why there is no former release to test with; false where there is. */
export const withoutFormerRelease =
  spawnSync('git', ['cat-file', '-e', `${formerRelease}^{commit}`]).status === 0
    ? false
    : `the history has no ${formerRelease}, a shallow clone perhaps: NO UPGRADE IS TESTED`;

const run = promisify(execFile);

/** Builds the former release in a folder that is gone after the test. */
export async function buildFormerRelease(t: Test): Promise<string> {
  const root = await mkdtemp(path.join(tmpdir(), 'merchant-gateway-former-'));
  t.teardown(() => rm(root, { recursive: true, force: true }));
  await run('sh', ['-c', 'git archive "$1" | tar -x -C "$2"', 'sh', formerRelease, root]);
  const [own, former] = await Promise.all(['.', root].map((folder) => lockedPackages(folder)));
  if (own === former) await symlink(path.resolve('node_modules'), path.join(root, 'node_modules'));
  else await run('npm', ['ci', '--no-audit', '--no-fund'], { cwd: root });
  await run('npm', ['run', '--silent', 'build'], { cwd: root });
  return root;
}

/** What is to be installed, without what the package says of itself. */
async function lockedPackages(folder: string): Promise<string> {
  const { packages } = JSON.parse(await readFile(path.join(folder, 'package-lock.json'), 'utf8')) as {
    readonly packages: Record<string, object>;
  };
  return JSON.stringify({ ...packages, '': null });
}
