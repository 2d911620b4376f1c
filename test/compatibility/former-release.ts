import { execFile, spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { isDeepStrictEqual, promisify } from 'node:util';

/** The commit of the former release, from which users upgrade; each release names its predecessor here. */
const formerRelease = '33b20c0c93826cfc7590c4e0b8bafce957971307';

/** The reason why the former release is not available for tests; false if it is. */
export const withoutFormerRelease =
  spawnSync('git', ['cat-file', '-e', `${formerRelease}^{commit}`]).status === 0
    ? false
    : `the history has no ${formerRelease}, a shallow clone perhaps: NO UPGRADE IS TESTED`;

const run = promisify(execFile);

/**
 * The folder of the former release. Until `npm ci` deletes it, all tests use the same build, because a build takes both
 * cores for half a minute.
 */
const root = path.resolve('node_modules/.cache', `former-release-${formerRelease.slice(0, 12)}`);
const isBuilt = path.join(root, 'built');
/** If a build has not ended after this many milliseconds, it was aborted, and a test builds anew. */
const abortedMilliseconds = 240_000;

/** Returns the folder of the former release. Builds it first if neither this test nor another one has done so. */
export async function buildFormerRelease(): Promise<string> {
  await mkdir(path.dirname(root), { recursive: true });
  while (!existsSync(isBuilt)) {
    try {
      await mkdir(root);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
      const { mtimeMs } = await stat(root).catch(() => ({ mtimeMs: Date.now() }));
      if (Date.now() - mtimeMs > abortedMilliseconds) await rm(root, { recursive: true, force: true });
      await wait(200);
      continue;
    }
    try {
      await build();
      await writeFile(isBuilt, '');
    } catch (error) {
      await rm(root, { recursive: true, force: true });
      throw error;
    }
  }
  return root;
}

async function build(): Promise<void> {
  await run('sh', ['-c', 'git archive "$1" | tar -x -C "$2"', 'sh', formerRelease, root]);
  const [own, former] = await Promise.all([lockedPackages('.'), lockedPackages(root)]);
  if (hasPackagesOf(former, own)) await symlink(path.resolve('node_modules'), path.join(root, 'node_modules'));
  else await run('npm', ['ci', '--omit=dev', '--no-audit', '--no-fund'], { cwd: root });
  // The former release is built with the bundler of this release. Installing its own development tools would take most
  // of the time.
  const tools = `${path.resolve('node_modules/.bin')}${path.delimiter}${process.env.PATH ?? ''}`;
  await run('npm', ['run', '--silent', 'build'], { cwd: root, env: { ...process.env, PATH: tools } });
}

/** A package in a lock file. */
interface LockedPackage {
  readonly version?: string;
  readonly integrity?: string;
  /** Whether only development needs it. */
  readonly dev?: boolean;
}

/** The locked packages by their paths, such as `node_modules/pg`. */
type LockedPackages = ReadonlyMap<string, LockedPackage>;

/** The locked dependencies, without the package's own metadata. */
async function lockedPackages(folder: string): Promise<LockedPackages> {
  const { packages } = JSON.parse(await readFile(path.join(folder, 'package-lock.json'), 'utf8')) as {
    readonly packages: Readonly<Record<string, LockedPackage>>;
  };
  return new Map(Object.entries(packages).filter(([at]) => at !== ''));
}

/**
 * Whether this release has every package that the former release runs with, in the same version at the same path. The
 * `node_modules` folder of such a package must have no additional package, because the former release would load the
 * additional one. Packages for development may differ.
 */
function hasPackagesOf(former: LockedPackages, own: LockedPackages): boolean {
  const needed = new Map([...former].filter(([, { dev }]) => dev !== true));
  const content = (one: LockedPackage | undefined) => one && [one.version, one.integrity];
  const hasAll = [...needed].every(([at, one]) => isDeepStrictEqual(content(own.get(at)), content(one)));
  const others = [...own.keys()].filter((at) => !needed.has(at));
  return hasAll && !others.some((at) => [...needed.keys()].some((one) => at.startsWith(`${one}/node_modules/`)));
}
