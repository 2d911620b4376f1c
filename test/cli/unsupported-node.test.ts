import { readFileSync } from 'node:fs';
import { spawnSync } from 'node:child_process';
import path from 'node:path';
import t from 'tap';

const main = path.resolve('dist/cli/main.js');

/** Runs the executable on a Node that pretends to be the given version. */
function runOn(version: string) {
  const pretend = `Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '${version}' } });`;
  const preload = `data:text/javascript,${encodeURIComponent(pretend)}`;
  const env = { PATH: process.env.PATH ?? '' };
  return spawnSync(process.execPath, ['--import', preload, main, '--version'], { encoding: 'utf8', env });
}

t.test('an unsupported Node prints the required version and loads nothing else', (t) => {
  const { engines, version } = JSON.parse(readFileSync('package.json', 'utf8')) as {
    readonly engines: { readonly node: string };
    readonly version: string;
  };
  const oldest = engines.node.replace('>=', '');
  for (const old of ['12.22.12', '18.20.8', '20.18.3']) {
    const { status, stdout, stderr } = runOn(old);
    t.same([status, stdout], [1, ''], old);
    t.equal(
      stderr,
      `merchant-gateway requires Node.js ${oldest} or newer, but ${process.execPath} has version ${old}: install a newer Node.js and use it to start merchant-gateway.\n`,
    );
  }
  for (const good of [`${oldest}.0`, '21.0.0', '24.1.0']) t.same(runOn(good).stdout, `${version}\n`, good);
  const source = readFileSync(main, 'utf8');
  t.notMatch(source, /^import .* from /m, 'no module is imported before the check');
  t.notMatch(source, /\?\?|\?\.|\bawait\b|#\w/, 'no syntax that Node 12 cannot parse');
  t.end();
});
