import { spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import t from 'tap';
import { parse } from 'yaml';

const directory = mkdtempSync(path.join(tmpdir(), 'merchant-gateway-chart-'));
t.teardown(() => {
  rmSync(directory, { recursive: true, force: true });
});

t.test('the schema is closed at every level, and README and schema match the values', (t) => {
  const made = spawnSync(process.execPath, ['helm/generate.mjs', directory], { encoding: 'utf8' });
  t.equal(made.status, 0, made.stderr);
  for (const name of ['README.md', 'values.schema.json']) {
    const isSame = readFileSync(path.join(directory, name), 'utf8') === readFileSync(`helm/${name}`, 'utf8');
    t.ok(isSame, `helm/${name} is out of date: run npm run chart`);
  }
  const open: string[] = [];
  const walk = (schema: unknown, place: string): void => {
    if (typeof schema !== 'object' || schema === null) return;
    if ('properties' in schema && (schema as { additionalProperties?: unknown }).additionalProperties !== false)
      open.push(place);
    for (const [name, part] of Object.entries(schema)) walk(part, `${place}/${name}`);
  };
  walk(JSON.parse(readFileSync('helm/values.schema.json', 'utf8')), '');
  t.same(open, []);
  t.end();
});

t.test('chart and product have the same version', (t) => {
  const chart = parse(readFileSync('helm/Chart.yaml', 'utf8')) as Record<string, string>;
  const { version } = JSON.parse(readFileSync('package.json', 'utf8')) as { version: string };
  t.match(chart, { version, appVersion: version });
  t.end();
});

t.test('the package contains exactly the required files', (t) => {
  cpSync('helm', path.join(directory, 'chart'), { recursive: true });
  const { status, stdout } = spawnSync(path.resolve('node_modules/.bin/helm'), ['package', 'chart'], {
    cwd: directory,
    encoding: 'utf8',
  });
  t.equal(status, 0, stdout);
  const { version } = parse(readFileSync('helm/Chart.yaml', 'utf8')) as { version: string };
  const list = spawnSync('tar', ['-tzf', `merchant-gateway-${version}.tgz`], { cwd: directory, encoding: 'utf8' });
  t.notMatch(list.stdout, /\/ci\/|\.mjs\n.*generate|README\.in/);
  t.match(list.stdout, /files\/alerts\.yaml/);
  t.end();
});
