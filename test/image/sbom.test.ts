import { spawnSync } from 'node:child_process';
import { copyFileSync, existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import t from 'tap';

interface Component {
  readonly name: string;
  readonly version: string;
  readonly purl: string;
  readonly scope: string;
  readonly licenses?: readonly {
    readonly license?: { readonly id?: string; readonly name?: string };
    expression?: string;
  }[];
  readonly hashes?: readonly { readonly alg: string; readonly content: string }[];
}

interface Sbom {
  readonly bomFormat: string;
  readonly specVersion: string;
  readonly metadata: { readonly component: Component & { readonly type: string } };
  readonly components: readonly Component[];
}

interface Locked {
  readonly version: string;
  readonly dev?: true;
  readonly integrity?: string;
}

const manifest = JSON.parse(readFileSync('package.json', 'utf8')) as {
  readonly version: string;
  readonly dependencies: Record<string, string>;
  readonly devDependencies: Record<string, string>;
};
const lock = JSON.parse(readFileSync('package-lock.json', 'utf8')) as { readonly packages: Record<string, Locked> };

t.test('the SBOM has each production package with version, licence and hash, and no development package', (t) => {
  const folder = path.join(t.testdir({ 'merchant-gateway': {} }), 'merchant-gateway');
  for (const file of ['package.json', 'package-lock.json']) copyFileSync(file, path.join(folder, file));
  const dockerfile = readFileSync('Dockerfile', 'utf8').replaceAll('\\\n', '');
  const [, commands = ''] = /^RUN (npm ci [^\n]*sbom\.cdx\.json)$/m.exec(dockerfile) ?? [];
  t.match(dockerfile, /^WORKDIR \/merchant-gateway$/m, 'npm takes the component name from the folder');
  const env = { ...process.env, npm_config_prefer_offline: 'true', npm_config_update_notifier: 'false' };
  const { status, stderr } = spawnSync('sh', ['-euc', commands], { cwd: folder, encoding: 'utf8', env });
  t.equal(status, 0, stderr);
  const stdout = readFileSync(path.join(folder, 'sbom.cdx.json'), 'utf8');
  const { bomFormat, specVersion, metadata, components } = JSON.parse(stdout) as Sbom;
  t.match({ bomFormat, specVersion }, { bomFormat: 'CycloneDX', specVersion: /^1\.\d$/ });
  const purl = `pkg:npm/merchant-gateway@${manifest.version}`;
  const [name, type] = ['merchant-gateway', 'application'];
  t.match(metadata.component, { name, type, version: manifest.version, purl });
  /** Installed production packages of the lock file; libsql is installed for one platform of many. */
  const production = Object.entries(lock.packages)
    .filter(([place, { dev }]) => place !== '' && dev !== true && existsSync(path.join(folder, place)))
    .map(([place, { version, integrity }]) => {
      return { name: place.split('node_modules/').at(-1) ?? '', version, integrity };
    });
  const identity = ({ name, version }: { name: string; version: string }): string => `${name}@${version}`;
  t.same(new Set(components.map(identity)), new Set(production.map(identity)));
  for (const [name, version] of Object.entries(manifest.dependencies)) {
    t.ok(components.some((one) => identity(one) === `${name}@${version}`), name); // prettier-ignore
  }
  const development = Object.keys(manifest.devDependencies).filter(
    (name) => lock.packages[`node_modules/${name}`]?.dev,
  );
  t.ok(
    development.includes('typescript') && !development.includes('ajv'),
    'some development tools are also production dependencies',
  );
  t.same(development.filter((tool) => components.some(({ name }) => name === tool)), []); // prettier-ignore
  for (const component of components) {
    const { name, version, licenses = [], hashes = [] } = component;
    t.equal(component.purl, `pkg:npm/${name.replace('@', '%40')}@${version}`);
    const [first] = licenses;
    t.match(
      first?.license?.id ?? first?.license?.name ?? first?.expression,
      /^[A-Z0-9][\w.+() -]+$/i,
      `${name}: licence`,
    );
    const { integrity = '' } = production.find((one) => identity(one) === identity(component)) ?? {};
    const sha512 = Buffer.from(integrity.replace('sha512-', ''), 'base64').toString('hex');
    t.ok(hashes.some(({ alg, content }) => alg === 'SHA-512' && content === sha512), `${name}: hash`); // prettier-ignore
  }
  t.end();
});
