import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import t, { type Test } from 'tap';
import { parse } from 'yaml';

const { version } = JSON.parse(readFileSync('package.json', 'utf8')) as { version: string };

/** The names of the repository's files, including uncommitted ones. */
function repositoryFiles(): string[] {
  const { stdout } = spawnSync('git', ['ls-files', '-z', '--cached', '--others', '--exclude-standard'], {
    encoding: 'utf8',
    maxBuffer: 2 ** 24,
  });
  return stdout.split('\0').filter((name) => name !== '');
}

const identity = { GIT_AUTHOR_NAME: 'a', GIT_AUTHOR_EMAIL: 'a@example.com' };
const env = {
  ...{ ...process.env, ...identity, GIT_COMMITTER_NAME: 'a', GIT_COMMITTER_EMAIL: 'a@example.com' },
  ...{ GIT_CONFIG_GLOBAL: '/dev/null', npm_config_update_notifier: 'false' },
};

/** A separate repository with the files of a release. */
function repository(t: Test) {
  const folder = t.testdir();
  const run = (command: string, ...args: string[]) => {
    const { status, stdout, stderr } = spawnSync(command, args, { cwd: folder, encoding: 'utf8', env });
    return { status, stdout, stderr };
  };
  const isOfRelease = /^(?:[^/]+|helm\/.*|docs\/[^/]+|release\/.*|tor-exit-list\/.*)$/;
  for (const name of repositoryFiles().filter((one) => isOfRelease.test(one))) {
    mkdirSync(path.join(folder, path.dirname(name)), { recursive: true });
    copyFileSync(name, path.join(folder, name));
  }
  run('git', 'init', '--quiet', '--initial-branch=main');
  run('git', 'add', '--all');
  run('git', 'commit', '--quiet', '--message=all');
  const read = (name: string): string => readFileSync(path.join(folder, name), 'utf8');
  return { folder, read, run };
}

function sectionsOf(changelog: string): string[] {
  return Array.from(changelog.matchAll(/^## (.*)$/gm), ([, title = '']) => title);
}

t.test('npm version moves unreleased entries to the new version, and updates every reference in one commit', (t) => {
  const { read, run } = repository(t);
  const before = read('CHANGELOG.md');
  const { status, stdout, stderr } = run('npm', 'version', 'minor');
  t.equal(status, 0, stderr);
  const [major = '', minor = ''] = version.split('.');
  const next = `${major}.${Number(minor) + 1}.0`;
  t.match(stdout, `v${next}`);

  t.equal((JSON.parse(read('package.json')) as { version: string }).version, next);
  const lock = JSON.parse(read('package-lock.json')) as { version: string; packages: Record<string, object> };
  t.match({ version: lock.version, own: lock.packages[''] }, { version: next, own: { version: next } });
  t.match(parse(read('helm/Chart.yaml')), { version: next, appVersion: next });
  t.match(read('Dockerfile'), `org.opencontainers.image.version="${next}"`);
  const named = ['docs/operations.md', 'SECURITY.md', 'tor-exit-list/refresh-cronjob.yaml'];
  for (const name of named) {
    t.match(read(name), `merchant-gateway:${next}`, name);
    t.notMatch(read(name), `merchant-gateway:${version}`, name);
  }

  const after = read('CHANGELOG.md');
  const today = new Date().toISOString().slice(0, 10);
  t.same(sectionsOf(after), ['[Unreleased]', `[${next}] - ${today}`, ...sectionsOf(before).slice(1)]);
  t.match(after, `## [Unreleased]\n\n## [${next}] - ${today}\n\n### `, 'the unreleased section is empty');
  t.equal(after.replace(`\n\n## [${next}] - ${today}`, ''), before, 'nothing else has changed');

  const { stdout: files } = run('git', 'show', '--name-only', '--format=%s', `v${next}^{commit}`);
  const manifests = ['package.json', 'package-lock.json', 'CHANGELOG.md', 'Dockerfile', 'helm/Chart.yaml'];
  t.same(new Set(files.trim().split('\n')), new Set([next, '', ...manifests, ...named]));
  t.equal(run('git', 'status', '--porcelain').stdout, '', 'everything is committed');

  const again = run('npm', 'version', 'patch');
  t.not(again.status, 0, 'a release without changes is refused');
  t.match(again.stderr, 'CHANGELOG.md has nothing under "## [Unreleased]": say what the release changes first.');
  t.equal(run('git', 'status', '--porcelain').stdout, '', 'before any change');
  t.end();
});

t.test('a file that no longer names the version is reported before any change', (t) => {
  const { folder, read, run } = repository(t);
  writeFileSync(path.join(folder, 'Dockerfile'), read('Dockerfile').replace(`version="${version}"`, 'version="7"'));
  run('git', 'commit', '--quiet', '--all', '--message=other');
  const { status, stderr } = run('npm', 'version', 'minor');
  t.not(status, 0);
  t.match(stderr, /^Dockerfile does not have .*, which names the version\.$/m);
  t.equal(run('git', 'status', '--porcelain').stdout, '');
  t.end();
});

t.test('every reference to an image of this product names this version', (t) => {
  let found = 0;
  for (const name of repositoryFiles().filter((one) => !/^(?:test|CHANGELOG)/.test(one))) {
    for (const [image, tag] of readFileSync(name, 'utf8').matchAll(/merchant-gateway:(\d+\.\d+\.\d+[-.\w]*)/g)) {
      found += 1;
      t.equal(tag, version, `${name}: ${image}`);
    }
  }
  t.ok(found >= 4, `${found} references were checked`);
  t.end();
});

t.test('the changelog follows Keep a Changelog', (t) => {
  const changelog = readFileSync('CHANGELOG.md', 'utf8');
  const [unreleased, ...released] = sectionsOf(changelog);
  t.equal(unreleased, '[Unreleased]');
  t.ok(released.length > 0);
  for (const title of released) t.match(title, /^\[\d+\.\d+\.\d+\] - \d{4}-\d{2}-\d{2}$/, title);
  const kinds = ['Added', 'Changed', 'Deprecated', 'Removed', 'Fixed', 'Security'];
  for (const section of changelog.split(/^## /m).slice(1)) {
    const [title = '', ...parts] = section.split(/^### /m);
    t.notMatch(title, /^- /m, 'each entry is below its kind');
    const named = parts.map((part) => part.split('\n', 1)[0] ?? '');
    t.same(named, kinds.filter((kind) => named.includes(kind)), title); // prettier-ignore
  }
  t.end();
});
